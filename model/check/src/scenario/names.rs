//! Names that other crates define and scenario files refer to.

/// A rule and its sites.
#[derive(Clone, Copy, Debug)]
pub struct RuleName<'n> {
    /// The rule.
    pub name: &'n str,
    /// The sites at which it can be dropped alone.
    pub sites: &'n [&'n str],
}

/// The names that are valid in a scenario file.
#[derive(Clone, Copy, Debug)]
pub struct Names<'n> {
    /// Rules that can be dropped.
    pub rules: &'n [RuleName<'n>],
    /// Properties.
    pub properties: &'n [&'n str],
}

impl<'n> Names<'n> {
    /// The rule of that name.
    pub fn rule(&self, name: &str) -> Option<&'n RuleName<'n>> {
        self.rules.iter().find(|rule| rule.name == name)
    }
}

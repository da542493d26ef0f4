//! Whose bytes a cell holds.

/// The content of one cell: one component of one layer of one page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Content {
    /// Nothing that anybody may rely on: never written, or left behind by an owner that is gone.
    #[default]
    Poison,
    /// The right bytes of a block.
    Block(u16),
    /// Bytes of a block, written by the rules of another layout.
    Mislaid(u16),
    /// Bytes of several writes, or of a write that did not end.
    Torn,
}

impl Content {
    /// A number below 2^16, equal only for equal contents; for encodings.
    pub fn code(self) -> u16 {
        match self {
            Content::Poison => 0,
            Content::Torn => 1,
            Content::Block(block) => 2 + 2 * block,
            Content::Mislaid(block) => 3 + 2 * block,
        }
    }

    /// How the content is written in a trace, given the names of blocks.
    pub fn show(self, block_name: impl Fn(u16) -> String) -> String {
        match self {
            Content::Poison => "-".to_owned(),
            Content::Torn => "torn".to_owned(),
            Content::Block(block) => block_name(block),
            Content::Mislaid(block) => format!("mislaid {}", block_name(block)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torn_stale_mislaid_and_poisoned_contents_are_told_apart() {
        let contents = [
            Content::Poison,
            Content::Torn,
            Content::Block(0),
            Content::Mislaid(0),
            Content::Block(1),
            Content::Mislaid(1),
        ];
        let mut codes: Vec<u16> = contents.iter().map(|content| content.code()).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), contents.len());
        let name = |block: u16| ["A", "B"][usize::from(block)].to_owned();
        assert_eq!(Content::Mislaid(1).show(name), "mislaid B");
        assert_eq!(Content::Poison.show(name), "-");
    }
}

//! `kvweft list`.

use std::process::ExitCode;

use kvweft_check::build::with_names;
use kvweft_check::scenario::{self, ModelFile};
use kvweft_check::system::Marks;
use kvweft_core::RULES;
use kvweft_world::PROPERTIES;

use crate::args::{self, Format, What};
use crate::coverage::Coverage;
use crate::failure::Failure;
use crate::{json, output, table};

/// Runs the command.
pub(crate) fn run(args: &args::List) -> Result<ExitCode, Failure> {
    let (header, rows) = match args.what {
        What::Scenarios => (vec!["scenario", "title", "source", "tags"], scenarios()?),
        What::Rules => (vec!["rule", "sites", "obligation", "seen in"], rules()),
        What::Properties => (vec!["property", "kind", "says", "seen in"], properties()),
        What::Models => (vec!["model", "layers", "kinds", "bytes a token", "title"], models()?),
        What::Cells => (vec!["cell", "why it cannot be reached"], cells()),
    };
    match args.format {
        Format::Text => output::result(&table::table(&header, &rows))?,
        Format::Json => output::result(&json::list(args.what, &header, &rows))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn scenarios() -> Result<Vec<Vec<String>>, Failure> {
    let scenarios = with_names(scenario::load_embedded)?;
    Ok(scenarios.into_iter().map(|s| vec![s.name, s.title, s.source, s.tags.join(" ")]).collect())
}

fn rules() -> Vec<Vec<String>> {
    let row = |info: &kvweft_core::RuleInfo| {
        let sites: Vec<&str> = info.sites.iter().map(|site| site.name()).collect();
        let sites = if sites.is_empty() { "(not modelled yet)".to_owned() } else { sites.join(" ") };
        vec![info.name.to_owned(), sites, info.obligation.to_owned(), info.seen_in.to_owned()]
    };
    RULES.iter().map(row).collect()
}

fn properties() -> Vec<Vec<String>> {
    let row = |info: &&kvweft_world::PropertyInfo| {
        let kind = if info.liveness { "liveness" } else { "safety" };
        vec![info.name.to_owned(), kind.to_owned(), info.says.to_owned(), info.seen_in.to_owned()]
    };
    PROPERTIES.iter().map(row).collect()
}

fn models() -> Result<Vec<Vec<String>>, Failure> {
    let mut rows = Vec::new();
    for file in kvweft_scenarios::MODELS {
        let model = ModelFile::parse(file.name, file.text)?;
        let kinds = model.kinds().join(" ");
        let bytes = model.bytes_per_token(None).to_string();
        rows.push(vec![file.name.to_owned(), model.layers.len().to_string(), kinds, bytes, model.title]);
    }
    Ok(rows)
}

fn cells() -> Vec<Vec<String>> {
    let coverage = Coverage::of(&Marks::default());
    coverage.unreachable.into_iter().map(|(cell, why)| vec![cell, why.to_owned()]).collect()
}

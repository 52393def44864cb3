//! The scenario's parameters: its defaults, then a file, then the command line.

use std::fmt::Display;
use std::path::Path;

use holdoff_sim::scenario::Scenario;
use toml::{Table, Value};

use crate::args::SimArgs;
use crate::config;
use crate::failure::Failure;

/// The scenario as it was asked for.
pub(super) fn scenario(args: &SimArgs) -> Result<Scenario, Failure> {
    let unknown = || Failure::Usage(format!("there is no scenario {}", args.scenario));
    let scenario = Scenario::named(&args.scenario).ok_or_else(unknown)?;
    let mut parameters = Table::new();
    if let Some(file) = &args.params {
        parameters = from_file(file, &args.scenario)?;
    }
    for assignment in &args.set {
        let (key, value) = assignment.split_once('=').ok_or_else(|| {
            Failure::Usage(format!("--set {assignment}: expected KEY=VALUE, such as hold=2s"))
        })?;
        parameters.insert(key.trim().to_owned(), value_of(value.trim()));
    }
    if parameters.is_empty() {
        return Ok(scenario);
    }
    let document = Table::from_iter([(args.scenario.clone(), Value::Table(parameters))]);
    let read: Scenario = Value::Table(document)
        .try_into()
        .map_err(|error: toml::de::Error| unusable(&scenario, error.message()))?;
    check(&read)?;
    Ok(read)
}

/// Refuses parameters that make no sense.
pub(super) fn check(scenario: &Scenario) -> Result<(), Failure> {
    scenario.check().map_err(|why| unusable(scenario, why))
}

fn unusable(scenario: &Scenario, why: impl Display) -> Failure {
    let name = scenario.name();
    Failure::Usage(format!(
        "the parameters of {name} cannot be used: {why}\n\
         `holdoff sim {name} --show-params` shows how they are written"
    ))
}

/// The file's parameters: plain, or under the scenario's name.
fn from_file(file: &Path, scenario: &str) -> Result<Table, Failure> {
    let text = config::text(file)?;
    let mut table: Table = text.parse().map_err(|error: toml::de::Error| {
        Failure::Failed(format!("{} is not TOML\n\n{}", file.display(), error.to_string().trim_end()))
    })?;
    match table.remove(scenario) {
        Some(Value::Table(inner)) => Ok(inner),
        Some(other) => Ok(Table::from_iter([(scenario.to_owned(), other)])),
        None => Ok(table),
    }
}

/// A value as TOML has it; what is not TOML, such as `2s`, is text.
fn value_of(text: &str) -> Value {
    let line = format!("value = {text}");
    let parsed = line.parse::<Table>().ok().and_then(|mut table| table.remove("value"));
    parsed.unwrap_or_else(|| Value::String(text.to_owned()))
}

/// The scenario as a TOML file that `--params` reads.
pub(super) fn text(scenario: &Scenario) -> Result<String, Failure> {
    toml::to_string(scenario)
        .map_err(|error| Failure::Failed(format!("the parameters cannot be written: {error}")))
}

//! The scenario's parameters: its defaults, then a file, then the command line.

use std::fmt::Display;
use std::path::Path;

use holdoff_sim::scenario::Scenario;
use toml::{Table, Value};

use super::SimArgs;
use crate::config;
use crate::error::CommandError;

/// Returns the scenario with the requested parameters.
pub(super) fn scenario(args: &SimArgs) -> Result<Scenario, CommandError> {
    let unknown = || CommandError::Usage(format!("unknown scenario {}", args.scenario));
    let scenario = Scenario::named(&args.scenario).ok_or_else(unknown)?;
    let mut parameters = Table::new();
    if let Some(file) = &args.params {
        parameters = from_file(file, &args.scenario)?;
    }
    for assignment in &args.set {
        let (key, value) = assignment.split_once('=').ok_or_else(|| {
            CommandError::Usage(format!("--set {assignment}: expected KEY=VALUE, such as hold=2s"))
        })?;
        insert(&mut parameters, key.trim(), value_of(value.trim()));
    }
    if parameters.is_empty() {
        return Ok(scenario);
    }
    // Checks each parameter separately first, so that the error names its key.
    for (key, value) in &parameters {
        let alone = Table::from_iter([(key.clone(), value.clone())]);
        read(&scenario, alone).map_err(|error| invalid(&scenario, describe(key, &error)))?;
    }
    let read = read(&scenario, parameters).map_err(|error| invalid(&scenario, error.message()))?;
    check(&read)?;
    Ok(read)
}

fn read(scenario: &Scenario, parameters: Table) -> Result<Scenario, toml::de::Error> {
    Value::Table(Table::from_iter([(scenario.name().to_owned(), Value::Table(parameters))])).try_into()
}

/// Formats the problem with its key, and suggests the nearest name for an unknown key.
fn describe(key: &str, error: &toml::de::Error) -> String {
    let message = error.message();
    if !message.starts_with("unknown field") {
        return format!("{key}: {message}");
    }
    let words: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let (unknown, known) = words.split_first().map_or(("", &[][..]), |(unknown, known)| (*unknown, known));
    let prefix = if unknown == key { String::new() } else { format!("{key}: ") };
    format!("{prefix}unknown parameter `{unknown}`; {}", config::hint(unknown, known))
}

/// Inserts a value at a dotted path: `budget.ratio` is the `ratio` of `budget`.
fn insert(parameters: &mut Table, key: &str, value: Value) {
    match key.split_once('.') {
        None => {
            parameters.insert(key.to_owned(), value);
        }
        Some((outer, inner)) => {
            let table = parameters.entry(outer).or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(table) = table {
                insert(table, inner, value);
            }
        }
    }
}

/// Refuses invalid parameters.
pub(super) fn check(scenario: &Scenario) -> Result<(), CommandError> {
    scenario.check().map_err(|why| invalid(scenario, why))
}

fn invalid(scenario: &Scenario, why: impl Display) -> CommandError {
    let name = scenario.name();
    CommandError::Usage(format!(
        "invalid parameters of {name}: {why}\n`holdoff sim {name} --show-params` prints all parameters"
    ))
}

/// Reads the parameters of a file, either plain or under the scenario's name.
fn from_file(file: &Path, scenario: &str) -> Result<Table, CommandError> {
    let text = config::read_file(file)?;
    let mut table: Table = text.parse().map_err(|error: toml::de::Error| {
        CommandError::Failed(format!(
            "{} is not valid TOML\n\n{}",
            file.display(),
            error.to_string().trim_end()
        ))
    })?;
    match table.remove(scenario) {
        Some(Value::Table(inner)) => Ok(inner),
        Some(other) => Ok(Table::from_iter([(scenario.to_owned(), other)])),
        None => match Scenario::ALL.iter().find(|(other, _)| table.contains_key(*other)) {
            Some((other, _)) => Err(CommandError::Usage(format!(
                "{} contains the parameters of {other}, not of {scenario}",
                file.display()
            ))),
            None => Ok(table),
        },
    }
}

/// Parses a TOML value. Anything else, such as `2s`, is text.
fn value_of(text: &str) -> Value {
    let line = format!("value = {text}");
    let parsed = line.parse::<Table>().ok().and_then(|mut table| table.remove("value"));
    parsed.unwrap_or_else(|| Value::String(text.to_owned()))
}

/// Formats the scenario as a TOML file that `--params` reads.
pub(super) fn text(scenario: &Scenario) -> Result<String, CommandError> {
    toml::to_string(scenario)
        .map_err(|error| CommandError::Failed(format!("cannot format the parameters: {error}")))
}

/// Formats the scenario's unset optional parameters as comments.
pub(super) fn absent(scenario: &Scenario) -> String {
    let Scenario::Outage(outage) = scenario else { return String::new() };
    let budget = outage.budget.is_none().then_some("\n# [outage.budget]\n# ratio = 0.2\n# burst = 10\n");
    let breaker = outage.breaker.is_none().then_some(
        "\n# [outage.breaker]\n# failure_ratio = 0.5\n# min_calls = 20\n# window = \"10s\"\n# probes = 1\n",
    );
    budget.into_iter().chain(breaker).collect()
}

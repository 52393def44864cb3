//! The scenario's parameters: its defaults, then a file, then the command line.

use std::fmt::Display;
use std::path::Path;

use holdoff_sim::scenario::Scenario;
use toml::{Table, Value};

use crate::args::SimArgs;
use crate::config;
use crate::failure::Failure;

/// Returns the scenario with the requested parameters.
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
        insert(&mut parameters, key.trim(), value_of(value.trim()));
    }
    if parameters.is_empty() {
        return Ok(scenario);
    }
    // Checks each parameter separately first, so that the error names its key.
    for (key, value) in &parameters {
        let alone = Table::from_iter([(key.clone(), value.clone())]);
        read(&scenario, alone).map_err(|error| unusable(&scenario, told(key, &error)))?;
    }
    let read = read(&scenario, parameters).map_err(|error| unusable(&scenario, error.message()))?;
    check(&read)?;
    Ok(read)
}

fn read(scenario: &Scenario, parameters: Table) -> Result<Scenario, toml::de::Error> {
    Value::Table(Table::from_iter([(scenario.name().to_owned(), Value::Table(parameters))])).try_into()
}

/// Formats the problem with its key, and suggests the nearest name for an unknown key.
fn told(key: &str, error: &toml::de::Error) -> String {
    let message = error.message();
    if !message.starts_with("unknown field") {
        return format!("{key}: {message}");
    }
    let words: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let (unknown, known) = words.split_first().map_or(("", &[][..]), |(unknown, known)| (*unknown, known));
    let place = if unknown == key { String::new() } else { format!("{key}: ") };
    format!("{place}there is no parameter `{unknown}`; {}", config::hint(unknown, known))
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

/// Reads the parameters of a file, either plain or under the scenario's name.
fn from_file(file: &Path, scenario: &str) -> Result<Table, Failure> {
    let text = config::text(file)?;
    let mut table: Table = text.parse().map_err(|error: toml::de::Error| {
        Failure::Failed(format!("{} is not TOML\n\n{}", file.display(), error.to_string().trim_end()))
    })?;
    match table.remove(scenario) {
        Some(Value::Table(inner)) => Ok(inner),
        Some(other) => Ok(Table::from_iter([(scenario.to_owned(), other)])),
        None => match Scenario::ALL.iter().find(|(other, _)| table.contains_key(*other)) {
            Some((other, _)) => Err(Failure::Usage(format!(
                "{} has the parameters of {other}, not of {scenario}",
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
pub(super) fn text(scenario: &Scenario) -> Result<String, Failure> {
    toml::to_string(scenario)
        .map_err(|error| Failure::Failed(format!("the parameters cannot be written: {error}")))
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

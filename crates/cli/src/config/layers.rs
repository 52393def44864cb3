//! Merges the layers of the configuration: defaults, the file, variables and flags. The later layer wins.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use holdoff_policy::{PolicySet, Problems};

use super::{Whole, keys, read_whole};
use crate::failure::Failure;

/// The layer that a value comes from. Later variants win over earlier ones.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Origin {
    Default,
    File(String),
    Variable(String),
    Flag(&'static str),
}

/// A value that a flag sets.
pub(crate) struct Given {
    /// Its path in the file, such as `server.listen`.
    pub(crate) path: &'static str,
    pub(crate) flag: &'static str,
    pub(crate) value: toml::Value,
}

/// The merged configuration, and the origin of each value.
#[derive(Default)]
pub(crate) struct Config {
    pub(crate) whole: Whole,
    pub(crate) file: Option<PathBuf>,
    origins: BTreeMap<String, Origin>,
}

impl Config {
    pub(crate) fn origin(&self, path: &str) -> Origin {
        self.origins.get(path).cloned().unwrap_or(Origin::Default)
    }
}

/// A value that one layer sets.
struct Set {
    path: String,
    value: toml::Value,
    origin: Origin,
}

/// Reads every layer. If any layer has a mistake, the function reports all mistakes and returns no configuration.
pub(crate) fn load(named: Option<&Path>, given: Vec<Given>) -> Result<Config, Failure> {
    let file = super::file(named);
    let text = match &file {
        Some(path) => holdoff::load_with(path, |text| Ok(text.to_owned()))
            .map_err(|error| Failure::Failed(error.to_string()))?,
        None => String::new(),
    };
    let shown = file.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
    let mut mistakes: Vec<String> = Vec::new();
    let from_file = read_whole(&text);
    if let Err(problems) = &from_file {
        mistakes.push(format!("{}\n\n{}", heading(&text, problems), problems.clone().in_file(&shown)));
    }
    let base: toml::Table =
        if from_file.is_ok() { text.parse().unwrap_or_default() } else { toml::Table::new() };

    let mut sets = variables();
    sets.extend(given.into_iter().map(|Given { path, flag, value }| Set {
        path: path.to_owned(),
        value,
        origin: Origin::Flag(flag),
    }));
    // Checks each value separately, so that the error names the variable or flag.
    mistakes.extend(sets.iter().filter_map(|set| mistake(&base, set)));
    let whole = from_file.unwrap_or_default();
    if !mistakes.is_empty() {
        return Err(Failure::Failed(mistakes.join("\n\n")));
    }
    let mut origins = BTreeMap::new();
    note_file(&base, "", &shown, &mut origins);
    if sets.is_empty() {
        return Ok(Config { whole, file, origins });
    }
    let mut document = base;
    for Set { path, value, origin } in sets {
        put(&mut document, &path, value);
        origins.insert(path, origin);
    }
    let merged = read_table(&document).map_err(|problems| {
        Failure::Failed(format!("the file, the variables and the flags do not go together\n\n{problems}"))
    })?;
    // Variables cannot set policies, so the file's policies stay.
    let whole = Whole { policies: whole.policies, ..merged };
    Ok(Config { whole, file, origins })
}

/// Returns the values that variables set. An empty variable sets nothing.
fn variables() -> Vec<Set> {
    let read = |key: keys::Key| {
        let variable = key.variable();
        let text = std::env::var(&variable).ok().filter(|text| !text.is_empty())?;
        Some(Set { value: key.value(&text), path: key.path, origin: Origin::Variable(variable) })
    };
    keys::all().into_iter().filter_map(read).collect()
}

/// Checks one value together with the file and returns the error message, if any.
fn mistake(base: &toml::Table, set: &Set) -> Option<String> {
    let mut document = base.clone();
    put(&mut document, &set.path, set.value.clone());
    let problems = read_table(&document).err()?;
    let said = problems.iter().map(|problem| {
        let expected = problem.expected.as_ref().map(|expected| format!("; expected {expected}"));
        format!("{}: {}{}", set.origin, problem.message, expected.unwrap_or_default())
    });
    Some(said.collect::<Vec<_>>().join("\n"))
}

fn read_table(document: &toml::Table) -> Result<Whole, Problems> {
    read_whole(&toml::to_string(document).unwrap_or_default())
}

/// Inserts a value at its path and creates the tables on the way.
fn put(table: &mut toml::Table, path: &str, value: toml::Value) {
    match path.split_once('.') {
        None => drop(table.insert(path.to_owned(), value)),
        Some((outer, inner)) => {
            let entry = table.entry(outer).or_insert_with(|| toml::Value::Table(toml::Table::new()));
            if let Some(table) = entry.as_table_mut() {
                put(table, inner, value);
            }
        }
    }
}

/// Records the file as the origin of each value that it sets.
fn note_file(table: &toml::Table, place: &str, file: &str, origins: &mut BTreeMap<String, Origin>) {
    for (key, value) in table {
        let path = format!("{place}{key}");
        match value {
            toml::Value::Table(inner) => note_file(inner, &format!("{path}."), file, origins),
            _ => drop(origins.insert(path, Origin::File(file.to_owned()))),
        }
    }
}

/// Selects the heading of the error message. It names the policy file if every problem is one of the policies.
fn heading(text: &str, problems: &Problems) -> &'static str {
    let of_policies = PolicySet::from_toml(text).err();
    let is_theirs = |problem: &holdoff_policy::Problem| {
        of_policies.as_ref().is_some_and(|found| found.iter().any(|theirs| theirs == problem))
    };
    if problems.iter().all(is_theirs) {
        "the policy file cannot be used"
    } else {
        "the configuration cannot be used"
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(file) => f.write_str(file),
            Self::Variable(name) => write!(f, "${name}"),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}

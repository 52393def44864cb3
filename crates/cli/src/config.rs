//! The configuration and its layers: defaults, the file, environment variables and flags. The later layer wins.

mod command;
mod settings;

use std::collections::BTreeMap;
use std::fmt;
#[cfg(unix)]
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::Once;

use holdoff::LoadError;
use holdoff_council::acceptor::Settings as AcceptorSettings;
use holdoff_ledger::runtime::FileSettings as LedgerSettings;
use holdoff_lock::Settings as LockSettings;
use holdoff_policy::{Policy, PolicySet, Problems};
use holdoff_server::Settings as ServerSettings;
use holdoff_work::Settings as WorkSettings;

pub(crate) use command::{ConfigCommand, run};

use crate::error::CommandError;
use crate::output::warn;

/// The file that the command reads if the user names none.
const DEFAULT_FILE: &str = "holdoff.toml";

/// Returns the configuration file to use: the named file, or the default file in the current directory if this user or
/// root owns it. Another user's file could choose the daemon, the store and the credentials' destinations.
pub(crate) fn find_file(named: Option<&Path>) -> Option<PathBuf> {
    static WARNING: Once = Once::new();
    if let Some(named) = named {
        return Some(named.to_owned());
    }
    let here = Path::new(DEFAULT_FILE);
    if here.exists() && !is_own(here) {
        WARNING.call_once(|| {
            warn(&format!(
                "ignored {DEFAULT_FILE} in the current directory, because another user owns it; --config {DEFAULT_FILE} uses it"
            ));
        });
        return None;
    }
    here.exists().then(|| here.to_owned())
}

/// Returns whether this user or root owns the file, and the link to it if it is one.
#[cfg(unix)]
fn is_own(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let user = rustix::process::geteuid().as_raw();
    let is_trusted =
        |found: std::io::Result<Metadata>| found.is_ok_and(|found| [0, user].contains(&found.uid()));
    is_trusted(path.metadata()) && is_trusted(path.symlink_metadata())
}

#[cfg(not(unix))]
fn is_own(_: &Path) -> bool {
    true
}

/// Loads the policies of the file to use. Without a file these are the presets.
pub(crate) fn load_policies(named: Option<&Path>) -> Result<PolicySet, CommandError> {
    Ok(load_settings(named)?.policies)
}

/// The content of a configuration file.
#[derive(Default)]
pub(crate) struct AllSettings {
    pub(crate) policies: PolicySet,
    pub(crate) work: WorkSettings,
    pub(crate) lock: LockSettings,
    pub(crate) server: ServerSettings,
    pub(crate) acceptor: AcceptorSettings,
    pub(crate) ledger: LedgerSettings,
}

/// Reads a file and checks every section, so that the user finds a mistake before the daemon does.
pub(crate) fn load_checked(path: &Path) -> Result<AllSettings, LoadError> {
    holdoff::load_with(path, parse_settings)
}

/// Loads the configuration from all layers. Without any, it consists of the presets and the defaults.
pub(crate) fn load_settings(named: Option<&Path>) -> Result<AllSettings, CommandError> {
    load_config(named, Vec::new()).map(|config| config.settings)
}

/// Reads every section of a file and reports the problems of all sections at once.
pub(crate) fn parse_settings(text: &str) -> Result<AllSettings, Problems> {
    let mut found: Option<Problems> = None;
    let mut note = |problems: Problems| {
        found = Some(match found.take() {
            Some(others) => others.and(problems),
            None => problems,
        });
    };
    let policies = PolicySet::from_toml(text).map_err(&mut note).unwrap_or_default();
    let work = WorkSettings::from_toml(text).map_err(&mut note).unwrap_or_default();
    let lock = LockSettings::from_toml(text).map_err(&mut note).unwrap_or_default();
    let server = ServerSettings::from_toml(text).map_err(&mut note).unwrap_or_default();
    let acceptor = AcceptorSettings::from_toml(text).map_err(&mut note).unwrap_or_default();
    let ledger = LedgerSettings::from_toml(text).map_err(&mut note).unwrap_or_default();
    match found {
        Some(problems) => Err(problems),
        None => Ok(AllSettings { policies, work, lock, server, acceptor, ledger }),
    }
}

/// Reads a small file as text. Files larger than the limit for policy files are refused.
pub(crate) fn read_file(path: &Path) -> Result<String, CommandError> {
    let cannot =
        |why: &dyn std::fmt::Display| CommandError::Failed(format!("cannot read {}: {why}", path.display()));
    let size = std::fs::metadata(path).map_err(|error| cannot(&error))?.len();
    if size > PolicySet::MAX_FILE as u64 {
        return Err(cannot(&format!("it has {size} bytes; the limit is {}", PolicySet::MAX_FILE)));
    }
    std::fs::read_to_string(path).map_err(|error| cannot(&error))
}

/// Returns the policy with this name, or an error with a suggestion.
pub(crate) fn find_policy<'s>(set: &'s PolicySet, name: &str) -> Result<&'s Policy, CommandError> {
    set.policy(name).map(AsRef::as_ref).ok_or_else(|| {
        let scopes = std::iter::once(set.root()).chain(set.namespaces().values());
        if scopes.flat_map(|scope| scope.operations.keys()).any(|operation| operation == name) {
            return CommandError::Usage(format!(
                "{name} is an operation; `holdoff policy for {name}` shows its policy"
            ));
        }
        let known: Vec<_> = set.policies().keys().map(String::as_str).collect();
        CommandError::Usage(format!("unknown policy {name}; {}", hint(name, &known)))
    })
}

/// Suggests the nearest known name, or lists all of them.
pub(crate) fn hint(name: &str, known: &[&str]) -> String {
    let nearest = holdoff_policy::nearest(name, known.iter().copied());
    nearest.map_or_else(|| format!("known: {}", known.join(", ")), |near| format!("did you mean {near}?"))
}

/// The layer that a value comes from. Later variants win over earlier ones.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Origin {
    Default,
    File(String),
    Variable(String),
    Flag(&'static str),
}

/// A value that a flag sets.
pub(crate) struct FlagValue {
    /// Its path in the file, such as `server.listen`.
    pub(crate) path: &'static str,
    pub(crate) flag: &'static str,
    pub(crate) value: toml::Value,
}

impl FlagValue {
    /// Returns the values of the flags that are set, from the path in the file, the flag and the value of each.
    pub(crate) fn collect(
        flags: impl IntoIterator<Item = (&'static str, &'static str, Option<toml::Value>)>,
    ) -> Vec<Self> {
        let set =
            flags.into_iter().filter_map(|(path, flag, value)| Some(Self { path, flag, value: value? }));
        set.collect()
    }
}

/// The merged configuration, and the origin of each value.
#[derive(Default)]
pub(crate) struct Config {
    pub(crate) settings: AllSettings,
    pub(crate) file: Option<PathBuf>,
    origins: BTreeMap<String, Origin>,
}

impl Config {
    pub(crate) fn origin(&self, path: &str) -> Origin {
        self.origins.get(path).cloned().unwrap_or(Origin::Default)
    }
}

/// A value that one layer sets.
struct Override {
    path: String,
    value: toml::Value,
    origin: Origin,
}

/// Reads every layer. If any layer has an error, the function reports all errors and returns no configuration.
pub(crate) fn load_config(named: Option<&Path>, flags: Vec<FlagValue>) -> Result<Config, CommandError> {
    let file = find_file(named);
    let text = match &file {
        Some(path) => holdoff::load_with(path, |text| Ok(text.to_owned()))
            .map_err(|error| CommandError::Failed(error.to_string()))?,
        None => String::new(),
    };
    let shown = file.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
    let mut errors: Vec<String> = Vec::new();
    let from_file = parse_settings(&text);
    if let Err(problems) = &from_file {
        errors.push(format!("{}\n\n{}", heading(&text, problems), problems.clone().in_file(&shown)));
    }
    let base: toml::Table =
        if from_file.is_ok() { text.parse().unwrap_or_default() } else { toml::Table::new() };

    let mut overrides = environment();
    overrides.extend(flags.into_iter().map(|FlagValue { path, flag, value }| Override {
        path: path.to_owned(),
        value,
        origin: Origin::Flag(flag),
    }));
    errors.extend(override_errors(&base, &overrides));
    let settings = from_file.unwrap_or_default();
    if !errors.is_empty() {
        return Err(CommandError::Failed(errors.join("\n\n")));
    }
    let mut origins = BTreeMap::new();
    record_file_origins(&base, "", &shown, &mut origins);
    if overrides.is_empty() {
        return Ok(Config { settings, file, origins });
    }
    let document = with_overrides(&base, &overrides);
    origins.extend(overrides.into_iter().map(|Override { path, origin, .. }| (path, origin)));
    let merged = read_table(&document).map_err(|problems| {
        CommandError::Failed(format!(
            "the file, the environment variables and the flags contradict each other\n\n{problems}"
        ))
    })?;
    // Variables cannot set policies, so the file's policies stay.
    let settings = AllSettings { policies: settings.policies, ..merged };
    Ok(Config { settings, file, origins })
}

/// Returns the values that variables set. An empty variable sets nothing.
fn environment() -> Vec<Override> {
    let read = |key: settings::Key| {
        let variable = key.variable();
        let text = std::env::var(&variable).ok().filter(|text| !text.is_empty())?;
        Some(Override { value: key.value(&text), path: key.path, origin: Origin::Variable(variable) })
    };
    settings::all().into_iter().filter_map(read).collect()
}

/// Checks all values together, because some belong together, such as a certificate and its key. An error names the
/// variable or flag without which it would not occur.
fn override_errors(base: &toml::Table, overrides: &[Override]) -> Vec<String> {
    let Err(problems) = read_table(&with_overrides(base, overrides)) else { return Vec::new() };
    let mut errors = Vec::new();
    for (index, set) in overrides.iter().enumerate() {
        let (before, after) = (overrides.iter().take(index), overrides.iter().skip(index + 1));
        let others = read_table(&with_overrides(base, before.chain(after)));
        let is_due_to_others = |message: &str| {
            others.as_ref().is_err_and(|others| others.iter().any(|problem| problem.message == message))
        };
        for problem in problems.iter().filter(|problem| !is_due_to_others(&problem.message)) {
            let expected = problem.expected.as_ref().map(|expected| format!("; expected {expected}"));
            errors.push(format!("{}: {}{}", set.origin, problem.message, expected.unwrap_or_default()));
        }
    }
    errors
}

fn with_overrides<'a>(base: &toml::Table, overrides: impl IntoIterator<Item = &'a Override>) -> toml::Table {
    let mut document = base.clone();
    for Override { path, value, .. } in overrides {
        put(&mut document, path, value.clone());
    }
    document
}

fn read_table(document: &toml::Table) -> Result<AllSettings, Problems> {
    parse_settings(&toml::to_string(document).unwrap_or_default())
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
fn record_file_origins(
    table: &toml::Table,
    prefix: &str,
    file: &str,
    origins: &mut BTreeMap<String, Origin>,
) {
    for (key, value) in table {
        let path = format!("{prefix}{key}");
        match value {
            toml::Value::Table(inner) => record_file_origins(inner, &format!("{path}."), file, origins),
            _ => drop(origins.insert(path, Origin::File(file.to_owned()))),
        }
    }
}

/// Selects the heading of the error message. It names the policy file if every problem is one of the policies.
fn heading(text: &str, problems: &Problems) -> &'static str {
    let of_policies = PolicySet::from_toml(text).err();
    let is_of_policies = |problem: &holdoff_policy::Problem| {
        of_policies.as_ref().is_some_and(|found| found.iter().any(|other| other == problem))
    };
    if problems.iter().all(is_of_policies) { "invalid policy file" } else { "invalid configuration" }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn set(flag: &'static str, path: &str, value: &str) -> Override {
        Override { path: path.to_owned(), value: value.into(), origin: Origin::Flag(flag) }
    }

    #[test]
    fn values_that_belong_together_are_checked_together() {
        let base = toml::Table::new();
        let [cert, key] =
            [set("--tls-cert", "server.tls.cert", "cert.pem"), set("--tls-key", "server.tls.key", "key.pem")];
        let listen = set("--listen", "server.listen", "nowhere");
        assert_eq!(override_errors(&base, &[]), Vec::<String>::new());
        let errors = override_errors(&base, std::slice::from_ref(&cert));
        assert!(matches!(&errors[..], [error] if error.starts_with("--tls-cert: ")), "{errors:?}");
        let errors = override_errors(&base, &[cert, listen, key]);
        assert!(matches!(&errors[..], [error] if error.starts_with("--listen: ")), "{errors:?}");
    }
}

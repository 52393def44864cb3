//! The configuration and its layers: defaults, the file, variables and flags.

mod command;
mod keys;
mod layers;
mod values;

use std::path::{Path, PathBuf};

use holdoff::LoadError;
use holdoff_council::acceptor::Settings as AcceptorSettings;
use holdoff_ledger::runtime::Written as WrittenLedger;
use holdoff_lock::Settings as LockSettings;
use holdoff_policy::{Policy, PolicySet, Problems};
use holdoff_server::Settings as ServerSettings;
use holdoff_work::Settings;

pub(crate) use command::run;
pub(crate) use layers::{Config, Given, Origin, load as load_layers};

use crate::failure::Failure;

/// The file that the command reads if the user names none.
const DEFAULT_FILE: &str = "holdoff.toml";

/// Returns the policy file to use: the named file, or the default file in the current directory.
pub(crate) fn file(named: Option<&Path>) -> Option<PathBuf> {
    let here = || Path::new(DEFAULT_FILE).exists().then(|| DEFAULT_FILE.into());
    named.map(Path::to_owned).or_else(here)
}

/// Loads the policies of the file to use. Without a file these are the presets.
pub(crate) fn load(named: Option<&Path>) -> Result<PolicySet, Failure> {
    Ok(load_whole(named)?.policies)
}

/// The content of a configuration file.
#[derive(Default)]
pub(crate) struct Whole {
    pub(crate) policies: PolicySet,
    pub(crate) work: Settings,
    pub(crate) lock: LockSettings,
    pub(crate) server: ServerSettings,
    pub(crate) acceptor: AcceptorSettings,
    pub(crate) ledger: WrittenLedger,
}

/// Reads a file and checks every section, so that the user finds a mistake before the daemon does.
pub(crate) fn load_checked(path: &Path) -> Result<Whole, LoadError> {
    holdoff::load_with(path, read_whole)
}

/// Loads the configuration from all layers. Without any, it consists of the presets and the defaults.
pub(crate) fn load_whole(named: Option<&Path>) -> Result<Whole, Failure> {
    load_layers(named, Vec::new()).map(|config| config.whole)
}

/// Reads every section of a file and reports the problems of all sections at once.
pub(crate) fn read_whole(text: &str) -> Result<Whole, Problems> {
    let mut found: Option<Problems> = None;
    let mut note = |problems: Problems| {
        found = Some(match found.take() {
            Some(others) => others.and(problems),
            None => problems,
        });
    };
    let policies = PolicySet::from_toml(text).map_err(&mut note).unwrap_or_default();
    let work = Settings::from_toml(text).map_err(&mut note).unwrap_or_default();
    let lock = LockSettings::from_toml(text).map_err(&mut note).unwrap_or_default();
    let server = ServerSettings::from_toml(text).map_err(&mut note).unwrap_or_default();
    let acceptor = AcceptorSettings::from_toml(text).map_err(&mut note).unwrap_or_default();
    let ledger = WrittenLedger::from_toml(text).map_err(&mut note).unwrap_or_default();
    match found {
        Some(problems) => Err(problems),
        None => Ok(Whole { policies, work, lock, server, acceptor, ledger }),
    }
}

/// Reads a small file as text. Files larger than the limit for policy files are refused.
pub(crate) fn text(path: &Path) -> Result<String, Failure> {
    let cannot =
        |why: &dyn std::fmt::Display| Failure::Failed(format!("cannot read {}: {why}", path.display()));
    let size = std::fs::metadata(path).map_err(|error| cannot(&error))?.len();
    if size > PolicySet::MAX_FILE as u64 {
        return Err(cannot(&format!("it has {size} bytes; at most {} are read", PolicySet::MAX_FILE)));
    }
    std::fs::read_to_string(path).map_err(|error| cannot(&error))
}

/// Returns the policy with this name, or an error with a suggestion.
pub(crate) fn policy<'s>(set: &'s PolicySet, name: &str) -> Result<&'s Policy, Failure> {
    set.policy(name).map(AsRef::as_ref).ok_or_else(|| {
        let scopes = std::iter::once(set.root()).chain(set.namespaces().values());
        if scopes.flat_map(|scope| scope.operations.keys()).any(|operation| operation == name) {
            return Failure::Usage(format!(
                "{name} is an operation; `holdoff policy for {name}` shows its policy"
            ));
        }
        let known: Vec<_> = set.policies().keys().map(String::as_str).collect();
        Failure::Usage(format!("there is no policy {name}; {}", hint(name, &known)))
    })
}

/// Suggests the nearest known name, or lists all of them.
pub(crate) fn hint(name: &str, known: &[&str]) -> String {
    let nearest = holdoff_policy::nearest(name, known.iter().copied());
    nearest.map_or_else(|| format!("there are {}", known.join(", ")), |near| format!("did you mean {near}?"))
}

//! Selects and opens the store. The daemon and the commands that open the store use the same rules.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use holdoff_server::{AuditEvent, StoreUrl, TokenStore};

use crate::args::StoreArgs;
use crate::config::{Config, Origin, load_config};
use crate::error::CommandError;
use crate::output::warn;

/// The actor in audit entries of this command. The name is not authenticated: a process that can write to the store
/// can use any name.
pub(crate) const ACTOR: &str = "command line";

/// Selects the store from the last layer that names one: the file, a variable or a flag. The default is the user's
/// data directory.
pub(crate) fn select(args: &StoreArgs, config: Option<&Path>) -> Result<StoreUrl, CommandError> {
    from_config(&load_config(config, args.flag_values())?)
}

/// Resolves the store and the directory, which exclude each other. The later layer wins; within one layer, the store
/// wins.
pub(crate) fn from_config(config: &Config) -> Result<StoreUrl, CommandError> {
    let (store, data) = (config.origin("server.store"), config.origin("server.data"));
    match (&config.settings.server.running.store, &config.settings.server.running.data) {
        (Some(url), None) => return Ok(StoreUrl::new(url)),
        (Some(url), Some(_)) if rank(&store) >= rank(&data) => return Ok(StoreUrl::new(url)),
        (_, Some(directory)) => return Ok(StoreUrl::in_directory(directory)),
        (None, None) => {}
    }
    data_directory().map(StoreUrl::in_directory).ok_or_else(|| {
        CommandError::Usage(
            "the store has no default, because $HOME is not set; set --data DIR or --store URL".to_owned(),
        )
    })
}

/// Returns the directory of the ledgers: the one in the configuration, or a directory beside the SQLite store.
pub(crate) fn ledger_directory(config: &Config, store: &StoreUrl) -> Option<PathBuf> {
    let named = config.settings.ledger.data.clone();
    named.or_else(|| store.directory().map(|directory| directory.join("ledger")))
}

/// Returns this user's data directory for holdoff, if the environment has one.
pub(crate) fn data_directory() -> Option<PathBuf> {
    user_directory(std::env::var_os("XDG_DATA_HOME"), std::env::var_os("HOME"))
}

/// Fails if the store does not exist, so that a read-only command does not create an empty store. `creators` names the
/// commands that create it.
pub(crate) fn require_existing(store: &StoreUrl, creators: &str) -> Result<(), CommandError> {
    let Some(file) = store.missing_file() else { return Ok(()) };
    Err(CommandError::Failed(format!(
        "the store {} does not exist; {creators} creates it, and --data DIR or --store URL selects another",
        file.display()
    )))
}

/// Opens the API tokens and the audit log of a store.
pub(crate) async fn open_tokens(store: &StoreUrl) -> Result<TokenStore, CommandError> {
    Ok(Box::pin(TokenStore::open(store.as_str())).await?)
}

/// Writes an audit entry for an action of this command. The action is already done, so a failure only prints a
/// warning.
pub(crate) async fn record(store: &StoreUrl, event: AuditEvent) {
    // An in-memory store ends with this process, and Kubernetes has no audit table.
    if store.as_str().starts_with("sqlite::memory:") || store.as_str().starts_with("kubernetes") {
        return;
    }
    let recorded = async { Box::pin(TokenStore::open(store.as_str())).await?.record(&event.by(ACTOR)).await };
    if let Err(error) = recorded.await {
        warn(&format!("the action is done, but the audit log has no entry for it: {error}"));
    }
}

fn rank(origin: &Origin) -> u8 {
    match origin {
        Origin::Default => 0,
        Origin::File(_) => 1,
        Origin::Variable(_) => 2,
        Origin::Flag(_) => 3,
    }
}

/// Follows the XDG base directory specification, which ignores relative paths.
fn user_directory(data: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: Option<OsString>| path.map(PathBuf::from).filter(|path| path.is_absolute());
    let data = absolute(data).or_else(|| Some(absolute(home)?.join(".local/share")))?;
    Some(data.join("holdoff"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_directory_follows_the_xdg_specification() {
        let found = |data: Option<&str>, home: Option<&str>| {
            user_directory(data.map(Into::into), home.map(Into::into)).map(|path| path.display().to_string())
        };
        assert_eq!(found(Some("/d"), Some("/h")).as_deref(), Some("/d/holdoff"));
        assert_eq!(found(None, Some("/h")).as_deref(), Some("/h/.local/share/holdoff"));
        assert_eq!(found(Some("d"), Some("/h")).as_deref(), Some("/h/.local/share/holdoff"));
        assert_eq!(found(Some(""), None), None);
    }
}

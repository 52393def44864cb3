//! `holdoff ledger init` and `holdoff ledger join`, on a directory and without a daemon.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueHint;
use holdoff_ledger::runtime::{self, Error};
use holdoff_net::PeerAddress;
use holdoff_policy::PolicySet;

use crate::args::{GlobalArgs, path_value};
use crate::config::{Config, FlagValue, load_config};
use crate::error::CommandError;
use crate::output;
use crate::store;

#[derive(clap::Args, Debug)]
pub(super) struct DirectoryArgs {
    /// Data directory of the daemon, as in `holdoff serve --data`; the ledger is in its directory `ledger` [default:
    /// holdoff in the user's data directory]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    data: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
pub(super) struct JoinArgs {
    /// Member of the ledger, as its daemon prints its address when it starts; repeatable
    #[arg(long = "member", value_name = "KEY@HOST:PORT", required = true)]
    members: Vec<PeerAddress>,

    /// Address at which members reach this node, for the printed command [default: ledger.advertise, then
    /// ledger.listen]
    #[arg(long, value_name = "HOST:PORT")]
    address: Option<String>,

    #[command(flatten)]
    directory: DirectoryArgs,
}

pub(super) fn init(
    namespace: &str,
    args: &DirectoryArgs,
    global: &GlobalArgs,
) -> Result<ExitCode, CommandError> {
    let config = args.load_config(global)?;
    let directory = ledger_directory(&config)?;
    let (key, ledger) = runtime::create(&directory, namespace)?;
    let mut out = output::stdout();
    if global.json {
        let answer = serde_json::json!({
            "namespace": namespace, "ledger": ledger.to_string(), "key": key, "data": directory,
        });
        writeln!(out, "{answer}")?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(out, "{key}")?;
    note!(
        "This is the key of the node. Created the ledger `{namespace}` in {}, with this node as its only member.\n\
         Next: start `{}`, or restart the daemon if it runs already. `holdoff ledger status` shows the ledger. Another \
         node joins with `holdoff ledger join --member {key}@{}`.",
        directory.display(),
        args.serve_command(),
        advertised_address(&config)
    );
    Ok(ExitCode::SUCCESS)
}

pub(super) fn join(namespace: &str, args: &JoinArgs, global: &GlobalArgs) -> Result<ExitCode, CommandError> {
    let config = args.directory.load_config(global)?;
    let directory = ledger_directory(&config)?;
    let key = runtime::join(&directory, namespace, &args.members)?;
    let address = args.address.clone().unwrap_or_else(|| advertised_address(&config));
    let is_default = namespace == PolicySet::DEFAULT_NAMESPACE;
    let flag = if is_default { String::new() } else { format!(" --namespace {namespace}") };
    let command = format!("holdoff ledger members add {key}@{address}{flag}");
    let mut out = output::stdout();
    if global.json {
        let answer = serde_json::json!({
            "namespace": namespace, "key": key, "address": address, "data": directory, "run": command,
        });
        writeln!(out, "{answer}")?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(out, "{key}")?;
    note!(
        "This is the key of the node. Prepared {} for the ledger `{namespace}`.\n\
         Next: run on a member\n\n    {command}\n\n\
         and start `{}` here, or restart the daemon if it runs already. The order does not matter.",
        directory.display(),
        args.directory.serve_command()
    );
    Ok(ExitCode::SUCCESS)
}

impl DirectoryArgs {
    pub(super) fn load_config(&self, global: &GlobalArgs) -> Result<Config, CommandError> {
        let data = ("server.data", "--data", self.data.as_deref().map(path_value));
        load_config(global.config.as_deref(), FlagValue::collect([data]))
    }

    /// Returns the command that starts the daemon on the same directory.
    pub(super) fn serve_command(&self) -> String {
        let data = self.data.as_ref().map(|data| format!(" --data {}", data.display()));
        format!("holdoff serve{}", data.unwrap_or_default())
    }
}

/// Returns the directory in which a daemon with this configuration keeps its ledgers.
pub(super) fn ledger_directory(config: &Config) -> Result<PathBuf, CommandError> {
    let missing = || {
        let message = "the store is not in a directory, so ledgers have no default directory: set ledger.data in the \
                       configuration file, or --data DIR";
        CommandError::Usage(message.to_owned())
    };
    store::ledger_directory(config, &store::from_config(config)?).ok_or_else(missing)
}

/// Returns the address that a daemon with this configuration advertises to other members.
fn advertised_address(config: &Config) -> String {
    let settings = config.settings.ledger.at("");
    settings.advertise.unwrap_or_else(|| settings.listen.to_string())
}

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        match error {
            Error::BadNamespace(_) => Self::Usage(error.to_string()),
            Error::AlreadyExists(_) => Self::Failed(format!(
                "{error}; `holdoff serve` runs it, and a daemon that was running when it was created must be restarted"
            )),
            Error::InUse(_) => Self::Failed(format!(
                "{error}; a running daemon uses it, and `holdoff ledger status` shows its state"
            )),
            _ => Self::failed(error),
        }
    }
}

//! `holdoff ledger init` and `holdoff ledger join`, on a directory and without a daemon.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use holdoff_ledger::runtime::{self, Contact, Error};

use crate::args::{Args, LedgerArgs, LedgerPlaceArgs};
use crate::config::{Config, Given, load_layers};
use crate::failure::Failure;
use crate::serve;

pub(super) fn init(command: &LedgerArgs, place: &LedgerPlaceArgs, args: &Args) -> Result<ExitCode, Failure> {
    let config = load(place, args)?;
    let directory = directory(&config)?;
    let (key, ledger) = runtime::found(&directory, &command.namespace)?;
    let mut out = anstream::stdout();
    if args.json {
        let answer = serde_json::json!({
            "namespace": command.namespace, "ledger": ledger.to_string(), "key": key, "data": directory,
        });
        writeln!(out, "{answer}")?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(out, "{key}")?;
    let (namespace, shown) = (&command.namespace, directory.display());
    anstream::eprintln!(
        "This node's key. It has made the ledger `{namespace}` in {shown}, and decides it alone until others come.\n\
         Next: `{}` runs it; a daemon that runs already must be started anew. `holdoff ledger status` says how it is \
         doing, and another node comes in by `holdoff ledger join --member {key}@{}` there.",
        to_serve(place),
        told(&config)
    );
    Ok(ExitCode::SUCCESS)
}

pub(super) fn join(
    command: &LedgerArgs,
    place: &LedgerPlaceArgs,
    members: &[Contact],
    address: Option<&str>,
    args: &Args,
) -> Result<ExitCode, Failure> {
    let config = load(place, args)?;
    let directory = directory(&config)?;
    let key = runtime::join(&directory, &command.namespace, members)?;
    let address = address.map_or_else(|| told(&config), str::to_owned);
    let namespace = &command.namespace;
    let named = if namespace == "default" { String::new() } else { format!(" --namespace {namespace}") };
    let line = format!("holdoff ledger members add {key}@{address}{named}");
    let mut out = anstream::stdout();
    if args.json {
        let answer = serde_json::json!({
            "namespace": namespace, "key": key, "address": address, "data": directory, "run": line,
        });
        writeln!(out, "{answer}")?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(out, "{key}")?;
    anstream::eprintln!(
        "This node's key. It has made room for the ledger `{namespace}` in {}.\n\
         Next: a member runs\n\n    {line}\n\n\
         and here `{}` does the rest; a daemon that runs already must be started anew. The order does not matter.",
        directory.display(),
        to_serve(place)
    );
    Ok(ExitCode::SUCCESS)
}

fn load(place: &LedgerPlaceArgs, args: &Args) -> Result<Config, Failure> {
    let text = |path: &PathBuf| toml::Value::String(path.display().to_string());
    let given =
        place.data.iter().map(|path| Given { path: "server.data", flag: "--data", value: text(path) });
    load_layers(args.config.as_deref(), given.collect())
}

/// Returns the directory in which a daemon with this configuration keeps its ledgers.
fn directory(config: &Config) -> Result<PathBuf, Failure> {
    let nowhere = || {
        let message = "work is kept in a store, and no directory is named for ledgers: say `data` in the file's \
                       [ledger], or --data DIR";
        Failure::Usage(message.to_owned())
    };
    serve::ledgers_of(config, &serve::place_of(config)?).ok_or_else(nowhere)
}

/// Returns the address that a daemon with this configuration advertises to other members.
fn told(config: &Config) -> String {
    let how = config.whole.ledger.at("");
    how.advertise.unwrap_or_else(|| how.listen.to_string())
}

/// Returns the command that starts the daemon on the same directory.
fn to_serve(place: &LedgerPlaceArgs) -> String {
    let data = place.data.as_ref().map(|data| format!(" --data {}", data.display()));
    format!("holdoff serve{}", data.unwrap_or_default())
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::BadNamespace(_) => Self::Usage(error.to_string()),
            Error::IsThere(_) => Self::Failed(format!(
                "{error}. `holdoff serve` runs it; a daemon that ran already when it was made must be started anew"
            )),
            Error::InUse(_) => {
                Self::Failed(format!("{error}. A daemon that runs has it: `holdoff ledger status` asks that"))
            }
            _ => Self::Failed(error.to_string()),
        }
    }
}

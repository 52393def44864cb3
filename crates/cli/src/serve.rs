//! `holdoff serve`

mod log;
mod place;
mod sections;
mod traces;

use std::io::Write;
use std::process::ExitCode;

use holdoff_server::{Options, Place, Reload, Server, Stopped};

pub(crate) use log::start as start_log;
pub(crate) use place::{data_directory, ledgers_of, place, place_of};
use sections::Sections;

use crate::args::{Args, ServeArgs};
use crate::config::{Config, load_layers};
use crate::failure::Failure;

pub(crate) fn run(command: &ServeArgs, args: &Args) -> Result<ExitCode, Failure> {
    let config = load_layers(args.config.as_deref(), command.given())?;
    log::start(&config)?;
    let mut options = Options::new(place::place_of(&config)?);
    options.ledger = ledger(&config, &options.place).map(Box::new);
    let Config { whole, file, .. } = config;
    let running = &whole.server.running;
    options.listen = running.listen;
    options.concurrency = usize::try_from(running.concurrency).unwrap_or(Options::CONCURRENCY);
    (options.grace, options.patience) = (running.grace, running.patience);
    (options.policies, options.settings, options.locking) = (whole.policies, whole.work, whole.lock);
    (options.server, options.acceptor) = (whole.server, whole.acceptor);
    options.reload = file.clone().map(|file| {
        let since_start = Sections::of(&file);
        Reload::new(move || {
            let config = load_layers(Some(&file), Vec::new()).map_err(|failure| failure.to_string())?;
            since_start.tell_changes(&file);
            Ok(config.whole.policies)
        })
    });
    let file = file.map(|file| file.display().to_string());
    let say = |server: &Server| {
        // A closed stdout does not keep the daemon from serving.
        let _ = greet(server, file.as_deref(), args.json);
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let no_more_traces = traces::send(&runtime);
    let served = runtime.block_on(Box::pin(holdoff_server::serve(options, say)));
    runtime.block_on(no_more_traces);
    match served.map_err(|error| Failure::Failed(error.to_string()))? {
        Stopped::AtOnce => Err(Failure::Failed(
            "stopped at once: steps that were running are taken up again when their leases are over"
                .to_owned(),
        )),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Returns the ledger settings if the file names a directory for ledgers, or if the default directory beside the work
/// exists.
fn ledger(config: &Config, place: &Place) -> Option<holdoff_ledger::runtime::Settings> {
    let directory = place::ledgers_of(config, place)?;
    let is_wanted = config.whole.ledger.data.is_some() || directory.is_dir();
    is_wanted.then(|| config.whole.ledger.at(directory))
}

fn greet(server: &Server, file: Option<&str>, json: bool) -> std::io::Result<()> {
    let mut out = anstream::stdout();
    let version = env!("CARGO_PKG_VERSION");
    let (url, place) = (server.url(), server.place());
    let acceptor = server.acceptor().map(|acceptor| format!("{}@{}", acceptor.key(), acceptor.address()));
    let ledger = server.ledger().map(|host| host.contact().to_string());
    let locks = server.locks_ledger().map(str::to_owned);
    if json {
        let mut greeting =
            serde_json::json!({ "version": version, "url": url, "store": place, "config": file });
        for (name, contact) in [("acceptor", acceptor), ("ledger", ledger), ("locks_ledger", locks)] {
            if let (Some(contact), Some(greeting)) = (contact, greeting.as_object_mut()) {
                greeting.insert(name.to_owned(), contact.into());
            }
        }
        return writeln!(out, "{greeting}");
    }
    writeln!(out, "holdoff {version} is serving at {url}")?;
    writeln!(out, "work is kept in {place}")?;
    if let Some(acceptor) = acceptor {
        writeln!(out, "councils find their acceptor at {acceptor}")?;
    }
    if let Some(ledger) = ledger {
        writeln!(out, "ledgers find this node at {ledger}")?;
    }
    if let Some(locks) = locks {
        writeln!(out, "locks are kept in the ledger {locks}")?;
    }
    if server.work().drift().is_some() {
        return writeln!(out, "policies are version {} of the store", server.work().policy_version());
    }
    match file {
        Some(file) => writeln!(out, "policies are those of {file}"),
        None => writeln!(out, "policies are the presets, because there is no holdoff.toml here"),
    }
}

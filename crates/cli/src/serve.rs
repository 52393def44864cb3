//! `holdoff serve`

mod log;

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueHint;
use holdoff_policy::{format_duration, parse_duration};
use holdoff_server::{LogFormat, Options, Reload, Server, Shutdown, StoreUrl};

pub(crate) use log::start as start_log;

use crate::args::{GlobalArgs, StoreArgs, parse_listen_address, path_value, with_default};
use crate::config::{self, Config, FlagValue, load_config};
use crate::error::CommandError;
use crate::output;
use crate::store;

/// The arguments of `holdoff serve`. Each flag overrides a key of the file's `[server]`.
#[derive(clap::Args, Debug)]
pub(crate) struct ServeArgs {
    #[arg(
        long,
        value_name = "ADDR",
        value_parser = parse_listen_address,
        help = with_default(
            "Address to listen on; a non-loopback address requires --require-token, and port 0 selects a free port",
            Options::LISTEN
        )
    )]
    listen: Option<SocketAddr>,

    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=100_000),
        help = with_default("Maximum number of HTTP steps that run at once", Options::CONCURRENCY)
    )]
    concurrency: Option<u32>,

    #[command(flatten)]
    store: StoreArgs,

    /// Require an API token for every request; `holdoff token create` creates one
    #[arg(long, help_heading = SECURITY)]
    require_token: bool,

    /// TLS certificate as PEM; the daemon reloads it when the file changes
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = SECURITY)]
    tls_cert: Option<PathBuf>,

    /// Private key of the TLS certificate as PEM
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = SECURITY)]
    tls_key: Option<PathBuf>,

    /// Serve without TLS on a non-loopback address, behind a proxy that terminates TLS
    #[arg(long, help_heading = SECURITY)]
    insecure: bool,

    #[arg(
        long,
        value_name = "FILTER",
        help_heading = LOGGING,
        help = "Log filter, such as debug or warn,holdoff_work=debug [default: $HOLDOFF_LOG, then $RUST_LOG, then info]"
    )]
    log: Option<String>,

    #[arg(
        long,
        value_name = "FORMAT",
        value_parser = LogFormat::ALL.map(LogFormat::name),
        help_heading = LOGGING,
        help = with_default("Log format; auto is pretty on a terminal and JSON otherwise", LogFormat::Auto.name())
    )]
    log_format: Option<String>,

    #[arg(
        long,
        value_name = "TIME",
        value_parser = parse_duration,
        help_heading = SHUTDOWN,
        help = with_default(
            "Time after SIGTERM during which the daemon still accepts requests and /readyz fails",
            format_duration(Options::GRACE)
        )
    )]
    grace: Option<Duration>,

    #[arg(
        long,
        value_name = "TIME",
        value_parser = parse_duration,
        help_heading = SHUTDOWN,
        help = with_default(
            "Time that running steps then get to finish before the daemon requeues them",
            format_duration(Options::DRAIN_TIMEOUT)
        )
    )]
    drain_timeout: Option<Duration>,
}

const SECURITY: &str = "Security options";
const LOGGING: &str = "Logging options";
const SHUTDOWN: &str = "Shutdown options";

impl ServeArgs {
    /// Returns the values set on the command line.
    pub(crate) fn flag_values(&self) -> Vec<FlagValue> {
        let text = |text: String| toml::Value::String(text);
        let time = |time: Duration| text(format_duration(time));
        let mut values = FlagValue::collect([
            ("server.listen", "--listen", self.listen.map(|address| text(address.to_string()))),
            ("server.concurrency", "--concurrency", self.concurrency.map(|count| i64::from(count).into())),
            ("server.log", "--log", self.log.clone().map(text)),
            ("server.log_format", "--log-format", self.log_format.clone().map(text)),
            ("server.grace", "--grace", self.grace.map(time)),
            ("server.drain_timeout", "--drain-timeout", self.drain_timeout.map(time)),
            ("server.tokens", "--require-token", self.require_token.then(|| text("required".to_owned()))),
            ("server.insecure", "--insecure", self.insecure.then(|| true.into())),
            ("server.tls.cert", "--tls-cert", self.tls_cert.as_deref().map(path_value)),
            ("server.tls.key", "--tls-key", self.tls_key.as_deref().map(path_value)),
        ]);
        values.extend(self.store.flag_values());
        values
    }
}

pub(crate) fn run(args: &ServeArgs, global: &GlobalArgs) -> Result<ExitCode, CommandError> {
    let config = load_config(global.config.as_deref(), args.flag_values())?;
    log::start(&config)?;
    let mut options = Options::new(store::from_config(&config)?);
    options.ledger = ledger(&config, &options.store).map(Box::new);
    let Config { settings, file, .. } = config;
    let running = &settings.server.running;
    options.listen = running.listen;
    options.concurrency = usize::try_from(running.concurrency).unwrap_or(Options::CONCURRENCY);
    (options.grace, options.drain_timeout) = (running.grace, running.drain_timeout);
    (options.policies, options.settings, options.locking) = (settings.policies, settings.work, settings.lock);
    (options.server, options.acceptor) = (settings.server, settings.acceptor);
    options.reload = file.clone().map(|file| {
        let at_start = RestartSections::read(&file);
        Reload::new(move || {
            let config = load_config(Some(&file), Vec::new()).map_err(|error| error.to_string())?;
            at_start.warn_about_changes(&file);
            Ok(config.settings.policies)
        })
    });
    let file = file.map(|file| file.display().to_string());
    let on_start = |server: &Server| {
        // A closed stdout does not keep the daemon from serving.
        let _ = print_greeting(server, file.as_deref(), global.json);
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let flush_traces = log::send_traces(&runtime);
    let served = runtime.block_on(Box::pin(holdoff_server::serve(options, on_start)));
    runtime.block_on(flush_traces);
    match served.map_err(CommandError::failed)? {
        Shutdown::Forced => Err(CommandError::Failed(
            "forced shutdown: the store requeues the running steps when their leases expire".to_owned(),
        )),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Returns the ledger settings if the file names a directory for ledgers, or if the default directory beside the store
/// exists.
fn ledger(config: &Config, store: &StoreUrl) -> Option<holdoff_ledger::runtime::Settings> {
    let directory = store::ledger_directory(config, store)?;
    let is_wanted = config.settings.ledger.data.is_some() || directory.is_dir();
    is_wanted.then(|| config.settings.ledger.at(directory))
}

/// Prints the addresses of the daemon and the origin of its policies.
fn print_greeting(server: &Server, file: Option<&str>, json: bool) -> std::io::Result<()> {
    let mut out = output::stdout();
    let version = env!("CARGO_PKG_VERSION");
    let (url, store) = (server.url(), server.store());
    let acceptor = server.acceptor().map(|acceptor| format!("{}@{}", acceptor.key(), acceptor.address()));
    let ledger = server.ledger().map(|host| host.contact().to_string());
    let locks = server.locks_ledger().map(str::to_owned);
    if json {
        let mut greeting =
            serde_json::json!({ "version": version, "url": url, "store": store, "config": file });
        for (name, contact) in [("acceptor", acceptor), ("ledger", ledger), ("locks_ledger", locks)] {
            if let (Some(contact), Some(greeting)) = (contact, greeting.as_object_mut()) {
                greeting.insert(name.to_owned(), contact.into());
            }
        }
        return writeln!(out, "{greeting}");
    }
    writeln!(out, "holdoff {version} serves at {url}")?;
    writeln!(out, "store: {store}")?;
    if let Some(acceptor) = acceptor {
        writeln!(out, "acceptor: {acceptor}")?;
    }
    if let Some(ledger) = ledger {
        writeln!(out, "ledger node: {ledger}")?;
    }
    if let Some(locks) = locks {
        writeln!(out, "locks: ledger {locks}")?;
    }
    if server.work().drift().is_some() {
        return writeln!(out, "policies: version {} of the store", server.work().policy_version());
    }
    match file {
        Some(file) => writeln!(out, "policies: {file}"),
        None => writeln!(out, "policies: presets (there is no holdoff.toml here)"),
    }
}

/// The sections that the daemon reads only when it starts: all except the policies.
const RESTART_SECTIONS: [&str; 8] =
    ["server", "work", "http", "credentials", "signals", "lock", "acceptor", "ledger"];

/// The sections of a file at the start of the daemon.
struct RestartSections(toml::Table);

impl RestartSections {
    fn read(file: &Path) -> Self {
        let text = config::read_file(file).unwrap_or_default();
        Self(text.parse().unwrap_or_default())
    }

    /// Warns of sections that have changed since the start and are not active.
    fn warn_about_changes(&self, file: &Path) {
        let changed = self.changes(&Self::read(file));
        if !changed.is_empty() {
            let file = file.display();
            tracing::warn!(%file, sections = changed, "ignored changes to sections that need a restart");
        }
    }

    fn changes(&self, now: &Self) -> String {
        let is_changed = |name: &&str| self.0.get(*name) != now.0.get(*name);
        let changed: Vec<_> =
            RESTART_SECTIONS.into_iter().filter(is_changed).map(|name| format!("[{name}]")).collect();
        changed.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_policies_need_no_restart() {
        let read = |text: &str| RestartSections(text.parse().unwrap());
        let start = read("[work]\nlease = \"1m\"\n[http.destination]\nconcurrency = 1");
        assert_eq!(start.changes(&read("[http.destination]\nconcurrency = 1\n[work]\nlease = \"1m\"")), "");
        let later =
            read("[work]\nlease = \"1m\"\n[http.destination]\nconcurrency = 2\n[lock]\nlease = \"1m\"");
        assert_eq!(start.changes(&later), "[http], [lock]");
        let policies =
            "[work]\nlease = \"1m\"\n[http.destination]\nconcurrency = 1\n[policies.mine]\nbase = \"1s\"";
        assert_eq!(start.changes(&read(policies)), "");
    }
}

//! How a daemon runs: the keys of `[server]` that `holdoff serve` also accepts as flags.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use holdoff_policy::file::{Reader, Section};

use crate::Options;

pub(super) const KEYS: [&str; 8] =
    ["listen", "store", "data", "concurrency", "log", "log_format", "grace", "patience"];

const LONGEST_GRACE: Duration = Duration::from_secs(600);
const LONGEST_PATIENCE: Duration = Duration::from_secs(3600);

/// How a daemon runs.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Running {
    /// The listen address.
    pub listen: SocketAddr,
    /// The store of work and locks. It may contain a password.
    pub store: Option<String>,
    /// The directory of the SQLite file, unless `store` is set.
    pub data: Option<PathBuf>,
    /// The number of HTTP steps that run at once.
    pub concurrency: u32,
    /// The filter of the log.
    pub log: Option<String>,
    /// The format of the log.
    pub log_format: LogFormat,
    /// How long the daemon still accepts requests after `SIGTERM`.
    pub grace: Duration,
    /// The drain timeout for running steps.
    pub patience: Duration,
}

/// Omits the store, which may contain a password.
impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("listen", &self.listen).finish_non_exhaustive()
    }
}

/// The format of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogFormat {
    /// `Pretty` on a terminal, `Json` otherwise.
    #[default]
    Auto,
    /// Text for people.
    Pretty,
    /// A JSON object on every line.
    Json,
}

impl LogFormat {
    /// All formats.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Pretty, Self::Json];

    /// Returns the format's name as it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Pretty => "pretty",
            Self::Json => "json",
        }
    }
}

impl Default for Running {
    fn default() -> Self {
        Self {
            listen: Options::LISTEN,
            store: None,
            data: None,
            concurrency: u32::try_from(Options::CONCURRENCY).unwrap_or(u32::MAX),
            log: None,
            log_format: LogFormat::Auto,
            grace: Options::GRACE,
            patience: Options::PATIENCE,
        }
    }
}

pub(super) fn read(reader: &mut Reader<'_>, section: &Section<'_, '_>) -> Running {
    let mut running = Running::default();
    section.address(reader, "listen", "127.0.0.1:7070", &mut running.listen);
    if let Some((value, _)) = section.get("store") {
        // The value may contain a password.
        reader.conceal(value.span());
    }
    running.store = section.text(reader, "store", "postgres://holdoff@db/holdoff");
    running.data = section.text(reader, "data", "/var/lib/holdoff").map(PathBuf::from);
    running.log = section.text(reader, "log", "warn,holdoff_work=debug");
    section.count(reader, "concurrency", 1..=100_000, &mut running.concurrency);
    if let Some((value, what)) = section.get("log_format") {
        let word = reader.word(value, &what, &LogFormat::ALL.map(LogFormat::name));
        let format = LogFormat::ALL.into_iter().find(|format| Some(format.name()) == word);
        running.log_format = format.unwrap_or_default();
    }
    section.duration(reader, "grace", Duration::ZERO..=LONGEST_GRACE, &mut running.grace);
    section.duration(reader, "patience", Duration::ZERO..=LONGEST_PATIENCE, &mut running.patience);
    running
}

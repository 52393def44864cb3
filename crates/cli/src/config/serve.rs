//! The file's `[server]`, as far as `holdoff serve` takes it as flags.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use holdoff_policy::Problems;
use holdoff_policy::file::{self, DeTable, Reader, Section};
use holdoff_server::Options;

const KEYS: &[&str] = &["listen", "store", "data", "concurrency", "log", "log_format", "grace", "patience"];

/// Keys of the section that others read.
const READ_ELSEWHERE: &[&str] = &[];

const LONGEST_GRACE: Duration = Duration::from_secs(600);
const LONGEST_PATIENCE: Duration = Duration::from_secs(3600);

/// What a daemon is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Serve {
    pub(crate) listen: SocketAddr,
    pub(crate) store: Option<String>,
    pub(crate) data: Option<PathBuf>,
    pub(crate) concurrency: u32,
    pub(crate) log: Option<String>,
    pub(crate) log_format: LogFormat,
    pub(crate) grace: Duration,
    pub(crate) patience: Duration,
}

/// How to log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub(crate) enum LogFormat {
    // For people on a terminal, for programs otherwise. These are no doc comments: the help would be twice as long.
    #[default]
    Auto,
    Pretty,
    Json,
}

impl LogFormat {
    const NAMES: [&str; 3] = ["auto", "pretty", "json"];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Pretty => "pretty",
            Self::Json => "json",
        }
    }
}

impl Default for Serve {
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

impl Serve {
    pub(super) fn from_toml(text: &str) -> Result<Self, Problems> {
        file::read(text, read)
    }
}

fn read(reader: &mut Reader<'_>, document: &DeTable<'_>) -> Serve {
    let mut serve = Serve::default();
    let Some(table) = reader.table_in(document, "server") else { return serve };
    let section = Section::new(reader, "[server]", table, &[KEYS, READ_ELSEWHERE].concat());
    if let Some((value, what)) = section.get("listen") {
        let expected = "an address and a port in quotes, such as \"127.0.0.1:7070\"";
        if let Some(text) = reader.string(value, &what, expected) {
            match text.parse() {
                Ok(address) => serve.listen = address,
                Err(_) => drop(
                    reader
                        .problem(value.span(), format!("{what} \"{text}\" is no address"))
                        .expected(expected),
                ),
            }
        }
    }
    if let Some((value, _)) = section.get("store") {
        // It may hold a password.
        reader.conceal(value.span());
    }
    serve.store = section.text(reader, "store", "postgres://holdoff@db/holdoff");
    serve.data = section.text(reader, "data", "/var/lib/holdoff").map(PathBuf::from);
    serve.log = section.text(reader, "log", "warn,holdoff_work=debug");
    section.count(reader, "concurrency", 1..=100_000, &mut serve.concurrency);
    if let Some((value, what)) = section.get("log_format") {
        serve.log_format = match reader.word(value, &what, &LogFormat::NAMES) {
            Some("pretty") => LogFormat::Pretty,
            Some("json") => LogFormat::Json,
            _ => LogFormat::Auto,
        };
    }
    section.duration(reader, "grace", Duration::ZERO..=LONGEST_GRACE, &mut serve.grace);
    section.duration(reader, "patience", Duration::ZERO..=LONGEST_PATIENCE, &mut serve.patience);
    serve
}

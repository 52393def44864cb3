//! The section `[server]` of the file: how the daemon runs, and access to it.

use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use holdoff_policy::Problems;
use holdoff_policy::file::{self, DeTable, Reader, Section, SpannedValue};

use crate::Options;
use crate::rate::Rate;

const KEYS: &[&str] = &["tokens", "hosts", "rate", "audit_keep", "insecure", "prefix", "tls"];
const TLS_KEYS: &[&str] = &["cert", "key"];
const TOKENS: &[&str] = &["required", "none"];
const MAX_HOSTS: usize = 100;
const MAX_PREFIX_BYTES: usize = 200;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How the daemon runs, and access to it: the section `[server]` of the file.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// How it runs. [`Options`](crate::Options) take precedence.
    pub running: RunSettings,
    /// Whether tokens are required. Beyond loopback this must be set.
    pub require_tokens: bool,
    /// The accepted host names besides those of loopback, if tokens are required; all names if empty.
    pub hosts: Vec<String>,
    /// The rate limit of each token; no limit if absent.
    pub rate: Option<Rate>,
    /// The retention of the audit log.
    pub audit_keep: Duration,
    /// Whether to serve without TLS beyond loopback: behind a proxy that terminates TLS.
    pub insecure: bool,
    /// The path prefix of a proxy that also serves other applications: empty, or `/` and a name.
    pub prefix: String,
    /// The certificate and its key.
    pub tls: Option<TlsFiles>,
}

/// The files of the certificate and its key: `[server.tls]`, both as PEM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    /// The certificate chain.
    pub cert: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            running: RunSettings::default(),
            require_tokens: false,
            hosts: Vec::new(),
            rate: None,
            audit_keep: 365 * DAY,
            insecure: false,
            prefix: String::new(),
            tls: None,
        }
    }
}

impl Settings {
    /// Reads the section `[server]` of `holdoff.toml`. Absent keys have the values of [`Settings::default`]. If there
    /// is any problem, nothing is read, and all problems are reported. Other sections are ignored.
    ///
    /// ```
    /// use holdoff_server::Settings;
    ///
    /// let settings = Settings::from_toml("[server]\ntokens = \"required\"\nrate = \"100/s\"")?;
    /// assert!(settings.require_tokens);
    ///
    /// let problems = Settings::from_toml("[server]\ntoken = \"required\"").unwrap_err();
    /// assert!(problems.to_string().contains("did you mean `tokens`?"));
    /// # Ok::<(), holdoff_policy::Problems>(())
    /// ```
    pub fn from_toml(text: &str) -> Result<Self, Problems> {
        file::read(text, read)
    }
}

fn read(reader: &mut Reader<'_>, document: &DeTable<'_>) -> Settings {
    let mut settings = Settings::default();
    let Some(table) = reader.table_in(document, "server") else { return settings };
    let section = Section::new(reader, "[server]", table, &[KEYS, &RUN_KEYS].concat());
    settings.running = read_run_settings(reader, &section);
    if let Some((value, what)) = section.get("tokens") {
        settings.require_tokens = reader.word(value, &what, TOKENS) == Some("required");
    }
    if let Some((value, _)) = section.get("hosts") {
        settings.hosts = hosts(reader, value);
    }
    if let Some((value, what)) = section.get("rate")
        && let Some(text) = section.text(reader, "rate", "1000/s")
    {
        match text.parse() {
            Ok(rate) => settings.rate = Some(rate),
            Err(why) => {
                let problem = reader.problem(value.span(), format!("{what} \"{text}\" is not a rate: {why}"));
                problem.expected("a number for each second, minute or hour, such as \"1000/s\"");
            }
        }
    }
    section.duration(reader, "audit_keep", DAY..=3650 * DAY, &mut settings.audit_keep);
    if let Some((value, what)) = section.get("insecure") {
        settings.insecure = reader.boolean(value, &what).unwrap_or_default();
    }
    if let Some((value, _)) = section.get("prefix")
        && let Some(text) = section.text(reader, "prefix", "/holdoff")
    {
        settings.prefix = prefix(reader, value, &text);
    }
    settings.tls = tls(reader, table);
    settings
}

/// Accepts plain characters only, because the prefix is part of every link and of a cookie.
fn prefix(reader: &mut Reader<'_>, value: &SpannedValue<'_>, text: &str) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
    let is_name = |part: &str| !part.is_empty() && part != "." && part != ".." && part.chars().all(plain);
    let names = text.strip_prefix('/').map(|names| names.strip_suffix('/').unwrap_or(names));
    match names {
        Some("") => String::new(),
        Some(names) if names.len() <= MAX_PREFIX_BYTES && names.split('/').all(is_name) => {
            format!("/{names}")
        }
        _ => {
            let problem = reader.problem(value.span(), format!("prefix \"{text}\" is not a path"));
            problem.expected("a slash and names of letters, digits, `-`, `_` and `.`, such as \"/holdoff\"");
            String::new()
        }
    }
}

fn hosts(reader: &mut Reader<'_>, value: &SpannedValue<'_>) -> Vec<String> {
    const EXPECTED: &str = "a list of names, such as [\"holdoff.example.com\"]";
    let Some(list) = value.get_ref().as_array() else {
        reader.wrong_type(value, "hosts", EXPECTED);
        return Vec::new();
    };
    if list.len() > MAX_HOSTS {
        reader
            .problem(value.span(), format!("the list has {} hosts", list.len()))
            .expected(format!("at most {MAX_HOSTS}"));
    }
    let mut hosts = Vec::new();
    for value in list {
        let Some(host) = reader.string(value, "a host", EXPECTED) else { continue };
        let is_plain =
            !host.contains(|character: char| character.is_whitespace() || "/:@[]".contains(character));
        let is_name = !host.is_empty() && (is_plain || host.parse::<Ipv6Addr>().is_ok());
        if is_name {
            hosts.push(host.to_ascii_lowercase());
        } else {
            reader
                .problem(value.span(), format!("\"{host}\" is not a host name"))
                .expected("a name or an address, without a port and brackets");
        }
    }
    hosts
}

fn tls(reader: &mut Reader<'_>, table: &DeTable<'_>) -> Option<TlsFiles> {
    let section = Section::inside(reader, table, "tls", "tls.", TLS_KEYS)?;
    let (cert, key) = (section.text(reader, "cert", "cert.pem"), section.text(reader, "key", "key.pem"));
    for missing in TLS_KEYS.iter().filter(|key| section.get(key).is_none()) {
        if let Some(value) = table.get("tls") {
            reader
                .problem(value.span(), format!("[server.tls] has no `{missing}`"))
                .expected("both cert and key, each the path of a PEM file");
        }
    }
    Some(TlsFiles { cert: cert?.into(), key: key?.into() })
}

const RUN_KEYS: [&str; 8] =
    ["listen", "store", "data", "concurrency", "log", "log_format", "grace", "drain_timeout"];

const MAX_GRACE: Duration = Duration::from_secs(600);
const MAX_DRAIN_TIMEOUT: Duration = Duration::from_secs(3600);

/// How a daemon runs.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunSettings {
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
    pub drain_timeout: Duration,
}

/// Omits the store, which may contain a password.
impl std::fmt::Debug for RunSettings {
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

impl Default for RunSettings {
    fn default() -> Self {
        Self {
            listen: Options::LISTEN,
            store: None,
            data: None,
            concurrency: u32::try_from(Options::CONCURRENCY).unwrap_or(u32::MAX),
            log: None,
            log_format: LogFormat::Auto,
            grace: Options::GRACE,
            drain_timeout: Options::DRAIN_TIMEOUT,
        }
    }
}

fn read_run_settings(reader: &mut Reader<'_>, section: &Section<'_, '_>) -> RunSettings {
    let mut settings = RunSettings::default();
    section.address(reader, "listen", "127.0.0.1:7070", &mut settings.listen);
    if let Some((value, _)) = section.get("store") {
        // The value may contain a password.
        reader.conceal(value.span());
    }
    settings.store = section.text(reader, "store", "postgres://holdoff@db/holdoff");
    settings.data = section.text(reader, "data", "/var/lib/holdoff").map(PathBuf::from);
    settings.log = section.text(reader, "log", "warn,holdoff_work=debug");
    section.count(reader, "concurrency", 1..=100_000, &mut settings.concurrency);
    if let Some((value, what)) = section.get("log_format") {
        let word = reader.word(value, &what, &LogFormat::ALL.map(LogFormat::name));
        let format = LogFormat::ALL.into_iter().find(|format| Some(format.name()) == word);
        settings.log_format = format.unwrap_or_default();
    }
    section.duration(reader, "grace", Duration::ZERO..=MAX_GRACE, &mut settings.grace);
    section.duration(
        reader,
        "drain_timeout",
        Duration::ZERO..=MAX_DRAIN_TIMEOUT,
        &mut settings.drain_timeout,
    );
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> String {
        Settings::from_toml(text).unwrap_err().to_string()
    }

    #[test]
    fn every_key_is_parsed() {
        let text = "[server]\ntokens = \"required\"\nhosts = [\"Holdoff.example.com\", \"::1\"]\nrate = \"50/m\"\n\
                    audit_keep = \"30d\"\ninsecure = true\nprefix = \"/ops/holdoff/\"\n[server.tls]\ncert = \"a.pem\"\nkey = \"b.pem\"";
        let settings = Settings::from_toml(text).unwrap();
        assert!(settings.require_tokens && settings.insecure);
        assert_eq!(settings.hosts, ["holdoff.example.com", "::1"]);
        assert_eq!(settings.prefix, "/ops/holdoff");
        assert_eq!(settings.rate, Some("50/m".parse().unwrap()));
        assert_eq!(settings.audit_keep, 30 * DAY);
        assert_eq!(settings.tls, Some(TlsFiles { cert: "a.pem".into(), key: "b.pem".into() }));
        assert_eq!(Settings::from_toml("[work]\nx = 1").unwrap(), Settings::default());
    }

    #[test]
    fn problems_name_their_position() {
        assert!(problems("[server]\ntokens = \"require\"").contains("did you mean `required`?"));
        assert!(problems("[server]\nrate = \"fast\"").contains("2:8: rate \"fast\" is not a rate"));
        assert!(problems("[server]\nprefix = \"holdoff\"").contains("is not a path"));
        assert!(problems("[server]\nprefix = \"/a/../b\"").contains("is not a path"));
        assert!(problems("[server]\nrate = 5").contains("a text in quotes, such as \"1000/s\""));
        assert!(problems("[server]\nhosts = [\"https://a\"]").contains("is not a host name"));
        assert!(problems("[server]\nhosts = \"a\"").contains("a list of names"));
        assert!(problems("[server]\ntls = { cert = \"a\" }").contains("has no `key`"));
        assert!(problems("[server]\naudit_keep = \"1h\"").contains("a value from 1d to"));
        assert!(problems("server = 1").contains("[server] is an integer"));
    }

    #[test]
    fn the_schema_lists_the_same_keys() {
        for (definition, known) in
            [("ServerTable", [KEYS, &RUN_KEYS].concat()), ("TlsTable", TLS_KEYS.to_vec())]
        {
            assert_eq!(holdoff_policy::schema_keys(definition), known.into_iter().collect(), "{definition}");
        }
    }
}

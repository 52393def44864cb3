//! The section `[server]` of the file: how the daemon runs, and access to it.

mod running;

use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::time::Duration;

use holdoff_policy::Problems;
use holdoff_policy::file::{self, DeTable, Reader, Section, Value};

use crate::rate::Rate;
pub use running::{LogFormat, Running};

const KEYS: &[&str] = &["tokens", "hosts", "rate", "audit_keep", "insecure", "prefix", "tls"];
const TLS_KEYS: &[&str] = &["cert", "key"];
const TOKENS: &[&str] = &["required", "none"];
const MOST_HOSTS: usize = 100;
const LONGEST_PREFIX: usize = 200;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How the daemon runs, and access to it: the section `[server]` of the file.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// How it runs. [`Options`](crate::Options) take precedence.
    pub running: Running,
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
            running: Running::default(),
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
    let section = Section::new(reader, "[server]", table, &[KEYS, &running::KEYS].concat());
    settings.running = running::read(reader, &section);
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
                let problem = reader.problem(value.span(), format!("{what} \"{text}\" is no rate: {why}"));
                problem.expected("so many in a second, a minute or an hour, such as \"1000/s\"");
            }
        }
    }
    section.duration(reader, "audit_keep", DAY..=3650 * DAY, &mut settings.audit_keep);
    if let Some((value, what)) = section.get("insecure") {
        settings.insecure = reader.truth(value, &what).unwrap_or_default();
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
fn prefix(reader: &mut Reader<'_>, value: &Value<'_>, text: &str) -> String {
    let plain = |sign: char| sign.is_ascii_alphanumeric() || "-_.".contains(sign);
    let is_name = |part: &str| !part.is_empty() && part != "." && part != ".." && part.chars().all(plain);
    let names = text.strip_prefix('/').map(|names| names.strip_suffix('/').unwrap_or(names));
    match names {
        Some("") => String::new(),
        Some(names) if names.len() <= LONGEST_PREFIX && names.split('/').all(is_name) => format!("/{names}"),
        _ => {
            let problem = reader.problem(value.span(), format!("prefix \"{text}\" is no path"));
            problem.expected("a slash and names of letters, digits, `-`, `_` and `.`, such as \"/holdoff\"");
            String::new()
        }
    }
}

fn hosts(reader: &mut Reader<'_>, value: &Value<'_>) -> Vec<String> {
    const EXPECTED: &str = "a list of names, such as [\"holdoff.example.com\"]";
    let Some(list) = value.get_ref().as_array() else {
        reader.wrong_type(value, "hosts", EXPECTED);
        return Vec::new();
    };
    if list.len() > MOST_HOSTS {
        reader
            .problem(value.span(), format!("there are {} hosts", list.len()))
            .expected(format!("at most {MOST_HOSTS}"));
    }
    let mut hosts = Vec::new();
    for value in list {
        let Some(host) = reader.string(value, "a host", EXPECTED) else { continue };
        let is_plain = !host.contains(|sign: char| sign.is_whitespace() || "/:@[]".contains(sign));
        let is_name = !host.is_empty() && (is_plain || host.parse::<Ipv6Addr>().is_ok());
        if is_name {
            hosts.push(host.to_ascii_lowercase());
        } else {
            reader
                .problem(value.span(), format!("\"{host}\" is no host's name"))
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
                .expected("both cert and key, each the name of a PEM file");
        }
    }
    Some(TlsFiles { cert: cert?.into(), key: key?.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> String {
        Settings::from_toml(text).unwrap_err().to_string()
    }

    #[test]
    fn every_key_is_read() {
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
    fn what_is_wrong_is_said_with_its_place() {
        assert!(problems("[server]\ntokens = \"require\"").contains("did you mean `required`?"));
        assert!(problems("[server]\nrate = \"fast\"").contains("2:8: rate \"fast\" is no rate"));
        assert!(problems("[server]\nprefix = \"holdoff\"").contains("is no path"));
        assert!(problems("[server]\nprefix = \"/a/../b\"").contains("is no path"));
        assert!(problems("[server]\nrate = 5").contains("a text in quotes, such as \"1000/s\""));
        assert!(problems("[server]\nhosts = [\"https://a\"]").contains("is no host's name"));
        assert!(problems("[server]\nhosts = \"a\"").contains("a list of names"));
        assert!(problems("[server]\ntls = { cert = \"a\" }").contains("has no `key`"));
        assert!(problems("[server]\naudit_keep = \"1h\"").contains("a value from 1d to"));
        assert!(problems("server = 1").contains("[server] is an integer"));
    }

    #[test]
    fn the_schema_knows_exactly_the_readers_keys() {
        for (definition, known) in
            [("ServerTable", [KEYS, &running::KEYS].concat()), ("TlsTable", TLS_KEYS.to_vec())]
        {
            assert_eq!(holdoff_policy::schema_keys(definition), known.into_iter().collect(), "{definition}");
        }
    }
}

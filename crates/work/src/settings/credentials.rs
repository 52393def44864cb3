//! `[credentials.NAME]`: the sources of access tokens. Only the location of a secret is read, never the secret itself.

use std::collections::BTreeMap;
use std::path::PathBuf;

use holdoff_policy::file::{DeTable, Reader, Section, SpannedValue};
use url::{Host, ParseError, Url};

use super::{Credential, Secret};

/// The kinds of credentials, and the keys of each kind besides `kind`.
pub(super) const KINDS: [(&str, &[&str]); 3] = [
    ("token", &["token", "header", "hosts"]),
    ("client_credentials", &["token_url", "client_id", "client_secret", "scope", "hosts"]),
    ("refresh", &["url", "secret", "hosts"]),
];

/// The maximum number of hosts in one list.
const MAX_HOSTS: usize = 1000;

/// The keys whose values are never secrets.
const OPEN: &[&str] = &["kind", "token_url", "client_id", "scope", "url", "header", "hosts"];

/// The source of the access token, and the permitted hosts, by the credential's name.
type ReadCredentials = (BTreeMap<String, Credential>, BTreeMap<String, Vec<String>>);

/// Reads all credentials.
pub(super) fn read(reader: &mut Reader<'_>, value: &SpannedValue<'_>) -> ReadCredentials {
    let (mut credentials, mut hosts) = (BTreeMap::new(), BTreeMap::new());
    let Some(table) = value.get_ref().as_table() else {
        reader.conceal(value.span());
        reader.wrong_type(value, "[credentials]", "a table for each, such as [credentials.payments]");
        return (credentials, hosts);
    };
    for (name, value) in table {
        let name = name.get_ref().as_ref();
        let Some(table) = value.get_ref().as_table() else {
            reader.conceal(value.span());
            let expected = format!("a table, [credentials.{name}]");
            reader.wrong_type(value, &format!("credential `{name}`"), &expected);
            continue;
        };
        if name.is_empty() {
            reader
                .problem(value.span(), "a credential has an empty name")
                .expected("a name such as payments");
        }
        let credential = read_one(reader, &CredentialTable { name, value, table });
        credentials.extend(credential.map(|credential| (name.to_owned(), credential)));
        if let Some(value) = table.get("hosts") {
            hosts.insert(name.to_owned(), read_hosts(reader, value));
        }
    }
    (credentials, hosts)
}

fn read_hosts(reader: &mut Reader<'_>, value: &SpannedValue<'_>) -> Vec<String> {
    const EXPECTED: &str =
        "a list of hosts, such as [\"api.example.com\", \"*.example.com\", \"localhost:8080\"]";
    read_list(reader, value, "hosts", EXPECTED, check_host)
}

/// The result of the check of a host. An error contains the problem, and the correct name if it can be derived.
type CheckedHost = Result<(), (String, Option<String>)>;

/// Checks the name of a host, which may begin with `*.`.
pub(super) fn check_host(host: &str) -> CheckedHost {
    let named = host.strip_prefix("*.").unwrap_or(host);
    if named.contains('*') {
        return Err((format!("`{host}` has a star that is not a leading `*.`"), None));
    }
    check_destination(named)
}

/// Reads a list of hosts that pass this check.
pub(super) fn read_list(
    reader: &mut Reader<'_>,
    value: &SpannedValue<'_>,
    what: &str,
    expected: &str,
    check: impl Fn(&str) -> CheckedHost,
) -> Vec<String> {
    let Some(list) = value.get_ref().as_array() else {
        reader.wrong_type(value, what, expected);
        return Vec::new();
    };
    if list.len() > MAX_HOSTS {
        let message = format!("there are {} hosts", list.len());
        reader.problem(value.span(), message).expected(format!("at most {MAX_HOSTS}"));
    }
    let mut hosts = Vec::new();
    for value in list {
        let Some(host) = reader.string(value, "a host", expected) else { continue };
        match check(host) {
            Ok(()) => hosts.push(host.to_owned()),
            Err((message, right)) => {
                let problem = reader.problem(value.span(), message);
                problem.expected(expected);
                problem.suggestion = right;
            }
        }
    }
    hosts
}

/// The table of one credential, and its position in the file.
struct CredentialTable<'a, 'd> {
    name: &'a str,
    value: &'a SpannedValue<'d>,
    table: &'a DeTable<'d>,
}

fn read_one(reader: &mut Reader<'_>, entry: &CredentialTable<'_, '_>) -> Option<Credential> {
    // A misspelled or misplaced key may contain a secret too.
    for (_, value) in entry.table.iter().filter(|(key, _)| !OPEN.contains(&key.get_ref().as_ref())) {
        conceal(reader, value);
    }
    let kind = kind(reader, entry);
    refuse_other_keys(reader, entry, kind);
    let text = |reader: &mut Reader<'_>, key: &str, example: &str| {
        entry.needs(reader, key, &format!("\"{example}\""))?;
        entry.section().text(reader, key, example)
    };
    let address = |reader: &mut Reader<'_>, key: &str| {
        entry.needs(reader, key, "\"https://auth.example.com/token\"")?;
        read_url(reader, &entry.section(), key)
    };
    let secret = |reader: &mut Reader<'_>, key: &str| {
        let value = entry.needs(reader, key, "{ env = \"NAME\" }")?;
        read_secret(reader, value, key)
    };
    match kind {
        Some("token") => {
            let header = read_header(reader, &entry.section());
            Some(Credential::Token { token: secret(reader, "token")?, header })
        }
        Some("client_credentials") => {
            let token_url = address(reader, "token_url");
            let client_id = text(reader, "client_id", "me");
            let client_secret = secret(reader, "client_secret");
            let scope = entry.section().text(reader, "scope", "charge");
            let (token_url, client_id, client_secret) = (token_url?, client_id?, client_secret?);
            Some(Credential::ClientCredentials { token_url, client_id, client_secret, scope })
        }
        Some("refresh") => {
            let (url, secret) = (address(reader, "url"), secret(reader, "secret"));
            Some(Credential::Refresh { url: url?, secret: secret? })
        }
        _ => {
            // The kind is unknown, but a secret in the file is wrong for every kind.
            for key in ["token", "client_secret", "secret"] {
                entry.table.get(key).and_then(|value| read_secret(reader, value, key));
            }
            None
        }
    }
}

fn read_header(reader: &mut Reader<'_>, section: &Section<'_, '_>) -> Option<String> {
    let (value, what) = section.get("header")?;
    let name = section.text(reader, "header", "x-api-key")?;
    if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)) {
        return Some(name);
    }
    reader
        .problem(value.span(), format!("{what} is not the name of a header"))
        .expected("a name such as \"x-api-key\"");
    None
}

impl<'a, 'd> CredentialTable<'a, 'd> {
    fn section(&self) -> Section<'a, 'd> {
        Section::of(self.table)
    }

    /// Returns the value of a required key.
    fn needs(&self, reader: &mut Reader<'_>, key: &str, example: &str) -> Option<&'a SpannedValue<'d>> {
        let value = self.table.get(key);
        if value.is_none() {
            let message = format!("credential `{}` has no `{key}`", self.name);
            reader.problem(self.value.span(), message).expected(format!("{key} = {example}"));
        }
        value
    }
}

fn kind(reader: &mut Reader<'_>, entry: &CredentialTable<'_, '_>) -> Option<&'static str> {
    let words = KINDS.map(|(kind, _)| kind);
    let value = entry.needs(reader, "kind", "\"token\", \"client_credentials\" or \"refresh\"")?;
    let word = reader.word(value, "kind", &words)?;
    words.into_iter().find(|known| *known == word)
}

fn refuse_other_keys(reader: &mut Reader<'_>, entry: &CredentialTable<'_, '_>, kind: Option<&str>) {
    let every = || KINDS.iter().flat_map(|(_, keys)| keys.iter().copied());
    let is_own = |(known, _): &&(&str, _)| kind.is_none_or(|kind| kind == *known);
    let own: Vec<_> = KINDS.iter().filter(is_own).flat_map(|(_, keys)| keys.iter().copied()).collect();
    for key in entry.table.keys() {
        let written = key.get_ref().as_ref();
        if written == "kind" || own.contains(&written) {
            continue;
        }
        let expected = own.join(", ");
        match kind {
            Some(kind) if every().any(|known| known == written) => {
                reader
                    .problem(key.span(), format!("`{written}` has no meaning with kind = \"{kind}\""))
                    .expected(format!("{expected}, or another kind"));
            }
            _ => {
                let name = entry.name;
                reader
                    .problem(key.span(), format!("unknown key `{written}` in [credentials.{name}]"))
                    .expected(format!("one of kind, {expected}"))
                    .nearest(written, own.iter().copied().chain(["kind"]));
            }
        }
    }
}

/// The keys of a secret's table; exactly one is given.
pub(super) const SECRET_KEYS: &[&str] = &["env", "file"];

const SECRET_EXAMPLE: &str =
    "{ env = \"NAME\" } for an environment variable, or { file = \"/run/secrets/name\" } for a file";

/// Reads the location of a secret. A secret in the file itself is refused, and not shown.
fn read_secret(reader: &mut Reader<'_>, value: &SpannedValue<'_>, key: &str) -> Option<Secret> {
    let source = source(value);
    if source.is_some() {
        return source;
    }
    conceal(reader, value);
    let Some(table) = value.get_ref().as_table() else {
        let message = format!("{key} is in the file itself, and a secret must not be");
        reader.problem(value.span(), message).expected(SECRET_EXAMPLE);
        return None;
    };
    if let Some((other, _)) = table.iter().find(|(key, _)| !SECRET_KEYS.contains(&key.get_ref().as_ref())) {
        let written = other.get_ref().as_ref();
        reader
            .problem(other.span(), format!("unknown key `{written}` in {key}"))
            .expected(SECRET_EXAMPLE)
            .nearest(written, SECRET_KEYS.iter().copied());
        return None;
    }
    let (span, message) = match (table.get("env"), table.get("file")) {
        (None, None) => (value.span(), format!("{key} has neither `env` nor `file`")),
        (Some(_), Some(_)) => (value.span(), format!("{key} has both `env` and `file`")),
        (Some(env), None) => (env.span(), format!("{key}.env is not the name of an environment variable")),
        (None, Some(file)) => (file.span(), format!("{key}.file is not the name of a file")),
    };
    reader.problem(span, message).expected(SECRET_EXAMPLE);
    None
}

/// Hides a value in every reported problem, unless it is only the location of a secret.
fn conceal(reader: &mut Reader<'_>, value: &SpannedValue<'_>) {
    if source(value).is_some() {
        return;
    }
    match value.get_ref().as_table() {
        // The span of a table with a header of its own covers only that header.
        Some(table) if !reader.is_inline(value) => table.iter().for_each(|(_, value)| conceal(reader, value)),
        _ => reader.conceal(value.span()),
    }
}

fn source(value: &SpannedValue<'_>) -> Option<Secret> {
    let mut entries = value.get_ref().as_table()?.iter();
    let ((key, value), None) = (entries.next()?, entries.next()) else { return None };
    let text = value.get_ref().as_str()?;
    match key.get_ref().as_ref() {
        "env" if is_variable(text) => Some(Secret::Env(text.to_owned())),
        "file" if !text.is_empty() => Some(Secret::File(PathBuf::from(text))),
        _ => None,
    }
}

/// Returns whether a text can be the name of an environment variable, and not a secret in its entry.
fn is_variable(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Reads a URL that a request can be sent to, and returns it as it is written in the file.
pub(super) fn read_url(reader: &mut Reader<'_>, section: &Section<'_, '_>, key: &str) -> Option<String> {
    let (value, what) = section.get(key)?;
    let written = section.text(reader, key, "https://example.com/hook")?;
    let mut refuse = |message: String, expected: &str| {
        reader.problem(value.span(), message).expected(expected);
    };
    match Url::parse(&written) {
        // The URL parser would drop these characters without an error.
        _ if written.contains(|c: char| c.is_whitespace() || c.is_control()) => {
            refuse(format!("{what} contains a space or a control character"), "a URL without");
        }
        Err(ParseError::RelativeUrlWithoutBase) => {
            refuse(format!("{what} has no scheme"), "https:// or http:// before the host");
        }
        Err(error) => {
            refuse(format!("{what} is not a URL: {error}"), "a URL such as \"https://example.com/hook\"");
        }
        Ok(url) if !matches!(url.scheme(), "http" | "https") => {
            refuse(format!("{what} is a URL of the scheme `{}`", url.scheme()), "http or https");
        }
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            refuse(
                format!("{what} contains a user name or a password"),
                "a URL without; [credentials] is for secrets",
            );
        }
        Ok(_) => return Some(written),
    }
    // The part before an @ may contain a password.
    if written.contains('@') {
        reader.conceal(value.span());
    }
    None
}

/// Checks the name of a destination.
pub(super) fn check_destination(written: &str) -> CheckedHost {
    if let Ok(url) = Url::parse(written)
        && url.has_host()
    {
        let (host, port) = (url.host_str().unwrap_or_default(), url.port());
        let right = port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        return Err((format!("`{written}` is a URL and not a host"), Some(right)));
    }
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    let (host, port) = match written.rsplit_once(':') {
        // The colons of an IPv6 address are in brackets.
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (written, None),
    };
    if let Some(port) = port.filter(|port| !is_port(port)) {
        return Err((format!("`{port}` is not a port"), None));
    }
    let Ok(parsed) = Host::parse(host) else {
        return Err((format!("`{written}` is neither a host nor a host and a port"), None));
    };
    let usual = parsed.to_string();
    if usual == host {
        return Ok(());
    }
    let right = port.map_or_else(|| usual.clone(), |port| format!("{usual}:{port}"));
    Err((format!("`{written}` is not the normalized form of the host"), Some(right)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_with_and_without_a_port() {
        for right in
            ["api.example.com", "localhost:8080", "127.0.0.1", "[::1]", "[::1]:443", "xn--bcher-kva.de"]
        {
            assert_eq!(check_destination(right), Ok(()), "{right}");
        }
        let near = |written: &str| check_destination(written).unwrap_err().1;
        assert_eq!(near("https://api.example.com:8443/x").as_deref(), Some("api.example.com:8443"));
        assert_eq!(near("API.example.com").as_deref(), Some("api.example.com"));
        assert_eq!(near("bücher.de:80").as_deref(), Some("xn--bcher-kva.de:80"));
        for wrong in ["", "a b", "a:0", "a:99999", "a:x", "::1", "[::1", "a/b"] {
            assert!(check_destination(wrong).is_err(), "{wrong}");
        }
    }
}

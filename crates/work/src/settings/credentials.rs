//! `[credentials.NAME]`

use std::collections::BTreeMap;

use holdoff_policy::file::{DeTable, Reader, Section, Value};

use super::{Credential, address, secret};

/// The kinds of credentials, and the keys of each kind besides `kind`.
pub(super) const KINDS: [(&str, &[&str]); 3] = [
    ("token", &["token", "hosts"]),
    ("client_credentials", &["token_url", "client_id", "client_secret", "scope", "hosts"]),
    ("refresh", &["url", "secret", "hosts"]),
];

/// The maximum number of hosts of one credential.
const MOST_HOSTS: usize = 1000;

/// The keys whose values are never secrets.
const OPEN: &[&str] = &["kind", "token_url", "client_id", "scope", "url", "hosts"];

/// The source of the access token, and the permitted hosts, by the credential's name.
type Read = (BTreeMap<String, Credential>, BTreeMap<String, Vec<String>>);

/// Reads all credentials.
pub(super) fn read(reader: &mut Reader<'_>, value: &Value<'_>) -> Read {
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
        let credential = read_one(reader, &Place { name, value, table });
        credentials.extend(credential.map(|credential| (name.to_owned(), credential)));
        if let Some(value) = table.get("hosts") {
            hosts.insert(name.to_owned(), read_hosts(reader, value));
        }
    }
    (credentials, hosts)
}

fn read_hosts(reader: &mut Reader<'_>, value: &Value<'_>) -> Vec<String> {
    const EXPECTED: &str =
        "a list of hosts, such as [\"api.example.com\", \"*.example.com\", \"localhost:8080\"]";
    let Some(list) = value.get_ref().as_array() else {
        reader.wrong_type(value, "hosts", EXPECTED);
        return Vec::new();
    };
    if list.len() > MOST_HOSTS {
        let message = format!("there are {} hosts", list.len());
        reader.problem(value.span(), message).expected(format!("at most {MOST_HOSTS}"));
    }
    let mut hosts = Vec::new();
    for value in list {
        let Some(host) = reader.string(value, "a host", EXPECTED) else { continue };
        let named = host.strip_prefix("*.").unwrap_or(host);
        let checked = if named.contains('*') {
            Err((format!("`{host}` has a star that stands for no whole name"), None))
        } else {
            address::check_destination(named)
        };
        match checked {
            Ok(()) => hosts.push(host.to_owned()),
            Err((message, right)) => {
                let problem = reader.problem(value.span(), message);
                problem.expected(EXPECTED);
                problem.suggestion = right;
            }
        }
    }
    hosts
}

/// The table of one credential, and its position in the file.
struct Place<'a, 'd> {
    name: &'a str,
    value: &'a Value<'d>,
    table: &'a DeTable<'d>,
}

fn read_one(reader: &mut Reader<'_>, place: &Place<'_, '_>) -> Option<Credential> {
    // A misspelled or misplaced key may contain a secret too.
    for (_, value) in place.table.iter().filter(|(key, _)| !OPEN.contains(&key.get_ref().as_ref())) {
        secret::conceal(reader, value);
    }
    let kind = kind(reader, place);
    refuse_other_keys(reader, place, kind);
    let text = |reader: &mut Reader<'_>, key: &str, example: &str| {
        place.needs(reader, key, &format!("\"{example}\""))?;
        place.section().text(reader, key, example)
    };
    let address = |reader: &mut Reader<'_>, key: &str| {
        place.needs(reader, key, "\"https://auth.example.com/token\"")?;
        address::read(reader, &place.section(), key)
    };
    let secret = |reader: &mut Reader<'_>, key: &str| {
        let value = place.needs(reader, key, "{ env = \"NAME\" }")?;
        secret::read(reader, value, key)
    };
    match kind {
        Some("token") => Some(Credential::Token { token: secret(reader, "token")? }),
        Some("client_credentials") => {
            let token_url = address(reader, "token_url");
            let client_id = text(reader, "client_id", "me");
            let client_secret = secret(reader, "client_secret");
            let scope = place.section().text(reader, "scope", "charge");
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
                place.table.get(key).and_then(|value| secret::read(reader, value, key));
            }
            None
        }
    }
}

impl<'a, 'd> Place<'a, 'd> {
    fn section(&self) -> Section<'a, 'd> {
        Section::of(self.table)
    }

    /// Returns the value of a required key.
    fn needs(&self, reader: &mut Reader<'_>, key: &str, example: &str) -> Option<&'a Value<'d>> {
        let value = self.table.get(key);
        if value.is_none() {
            let message = format!("credential `{}` has no `{key}`", self.name);
            reader.problem(self.value.span(), message).expected(format!("{key} = {example}"));
        }
        value
    }
}

fn kind(reader: &mut Reader<'_>, place: &Place<'_, '_>) -> Option<&'static str> {
    let words = KINDS.map(|(kind, _)| kind);
    let value = place.needs(reader, "kind", "\"token\", \"client_credentials\" or \"refresh\"")?;
    let word = reader.word(value, "kind", &words)?;
    words.into_iter().find(|known| *known == word)
}

fn refuse_other_keys(reader: &mut Reader<'_>, place: &Place<'_, '_>, kind: Option<&str>) {
    let every = || KINDS.iter().flat_map(|(_, keys)| keys.iter().copied());
    let is_own = |(known, _): &&(&str, _)| kind.is_none_or(|kind| kind == *known);
    let own: Vec<_> = KINDS.iter().filter(is_own).flat_map(|(_, keys)| keys.iter().copied()).collect();
    for key in place.table.keys() {
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
                let name = place.name;
                reader
                    .problem(key.span(), format!("unknown key `{written}` in [credentials.{name}]"))
                    .expected(format!("one of kind, {expected}"))
                    .nearest(written, own.iter().copied().chain(["kind"]));
            }
        }
    }
}

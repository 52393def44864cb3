//! Checks the file's JSON schema against the readers.

use holdoff_policy::{schema, schema_keys};

use super::{credentials, http, notify, secret, signals, work};

fn keys(table: &serde_json::Value) -> Vec<&str> {
    table["properties"].as_object().unwrap().keys().map(String::as_str).collect()
}

fn sorted<'k>(keys: impl IntoIterator<Item = &'k &'k str>) -> Vec<&'k str> {
    let mut keys: Vec<_> = keys.into_iter().copied().collect();
    keys.sort_unstable();
    keys
}

#[test]
fn the_schema_knows_exactly_the_readers_keys() {
    for (definition, known) in [
        ("WorkTable", work::KEYS),
        ("RequeueTable", work::REQUEUE_KEYS),
        ("HistoryTable", work::HISTORY_KEYS),
        ("NotifyTable", notify::KEYS),
        ("HttpTable", http::KEYS),
        ("DestinationTable", http::DESTINATION_KEYS),
        ("BudgetTable", http::BUDGET_KEYS),
        ("BreakerTable", http::BREAKER_KEYS),
        ("SignalsTable", signals::KEYS),
    ] {
        assert_eq!(schema_keys(definition), known.iter().copied().collect(), "{definition}");
    }
}

#[test]
fn the_schema_knows_exactly_the_keys_of_each_kind_of_credential() {
    let schema = schema();
    let kinds = schema["$defs"]["CredentialTable"]["oneOf"].as_array().unwrap();
    assert_eq!(kinds.len(), credentials::KINDS.len());
    for (kind, known) in credentials::KINDS {
        let is_kind = |table: &&serde_json::Value| table["properties"]["kind"]["const"] == kind;
        let table = kinds.iter().find(is_kind).unwrap_or_else(|| panic!("no {kind}"));
        assert_eq!(keys(table), sorted(known.iter().chain(&["kind"])), "{kind}");
    }
    let secrets = schema["$defs"]["SecretTable"]["oneOf"].as_array().unwrap();
    let found: Vec<_> = secrets.iter().flat_map(keys).collect();
    assert_eq!(sorted(&found), sorted(secret::KEYS));
}

/// The readers find their sections by name; the reader of the policies checks the top level of the file.
#[test]
fn the_top_of_the_file_knows_the_sections() {
    let schema = schema();
    let top = keys(&schema);
    for section in ["work", "http", "credentials", "signals"] {
        assert!(top.contains(&section), "{section}");
    }
}

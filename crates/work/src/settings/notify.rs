//! `[[work.notify]]`

use holdoff_policy::file::{DeTable, Reader, Section, Value};

use super::Notify;
use super::address;

pub(super) const KEYS: &[&str] = &["operation", "queue", "namespace", "url", "credential"];

/// Reads all notifications.
pub(super) fn read(
    reader: &mut Reader<'_>,
    value: &Value<'_>,
    credentials: Option<&DeTable<'_>>,
) -> Vec<Notify> {
    const EXPECTED: &str = "tables, each under [[work.notify]] in double brackets";
    let Some(entries) = value.get_ref().as_array() else {
        reader.wrong_type(value, "work.notify", EXPECTED);
        return Vec::new();
    };
    let mut told = Vec::new();
    for entry in entries {
        match entry.get_ref().as_table() {
            Some(table) => told.extend(read_one(reader, entry, table, credentials)),
            None => reader.wrong_type(entry, "an entry of work.notify", EXPECTED),
        }
    }
    told
}

fn read_one(
    reader: &mut Reader<'_>,
    entry: &Value<'_>,
    table: &DeTable<'_>,
    credentials: Option<&DeTable<'_>>,
) -> Option<Notify> {
    let section = Section::new(reader, "[[work.notify]]", table, KEYS);
    let notify = Notify {
        operation: section.text(reader, "operation", "card.*"),
        queue: section.text(reader, "queue", "default"),
        namespace: section.text(reader, "namespace", "eu"),
        credential: credential(reader, &section, credentials),
        url: String::new(),
    };
    if !table.contains_key("url") {
        reader
            .problem(entry.span(), "an entry of work.notify has no `url`")
            .expected("url = \"https://example.com/hook\"");
    }
    Some(Notify { url: address::read(reader, &section, "url")?, ..notify })
}

/// Reads the name of a credential that exists. A credential that has problems of its own counts as existing, so that
/// only its own problems are reported.
fn credential(
    reader: &mut Reader<'_>,
    section: &Section<'_, '_>,
    credentials: Option<&DeTable<'_>>,
) -> Option<String> {
    let name = section.text(reader, "credential", "pager")?;
    let known: Vec<_> = credentials.into_iter().flatten().map(|(name, _)| name.get_ref().as_ref()).collect();
    if known.contains(&name.as_str()) {
        return Some(name);
    }
    let (value, _) = section.get("credential")?;
    let expected = match known.as_slice() {
        [] => format!("a table [credentials.{name}]"),
        known => format!("one of {}", known.join(", ")),
    };
    reader
        .problem(value.span(), format!("there is no credential `{name}`"))
        .expected(expected)
        .nearest(&name, known);
    None
}

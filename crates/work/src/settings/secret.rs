//! Reads the location of a secret, never the secret itself.

use std::path::PathBuf;

use holdoff_policy::file::{Reader, Value};

use super::Secret;

/// The keys of a secret's table; exactly one is given.
pub(super) const KEYS: &[&str] = &["env", "file"];

const HOW: &str =
    "{ env = \"NAME\" } for an environment variable, or { file = \"/run/secrets/name\" } for a file";

/// Reads the location of a secret. A secret in the file itself is refused, and not shown.
pub(super) fn read(reader: &mut Reader<'_>, value: &Value<'_>, key: &str) -> Option<Secret> {
    let source = source(value);
    if source.is_some() {
        return source;
    }
    conceal(reader, value);
    let Some(table) = value.get_ref().as_table() else {
        let message = format!("{key} stands in the file itself, where nobody can keep it secret");
        reader.problem(value.span(), message).expected(HOW);
        return None;
    };
    if let Some((other, _)) = table.iter().find(|(key, _)| !KEYS.contains(&key.get_ref().as_ref())) {
        let written = other.get_ref().as_ref();
        reader
            .problem(other.span(), format!("unknown key `{written}` in {key}"))
            .expected(HOW)
            .nearest(written, KEYS.iter().copied());
        return None;
    }
    let (span, message) = match (table.get("env"), table.get("file")) {
        (None, None) => (value.span(), format!("{key} says neither `env` nor `file`")),
        (Some(_), Some(_)) => (value.span(), format!("{key} says both `env` and `file`")),
        (Some(env), None) => (env.span(), format!("{key}.env is not the name of an environment variable")),
        (None, Some(file)) => (file.span(), format!("{key}.file is not the name of a file")),
    };
    reader.problem(span, message).expected(HOW);
    None
}

/// Hides a value in every reported problem, unless it is only the location of a secret.
pub(super) fn conceal(reader: &mut Reader<'_>, value: &Value<'_>) {
    if source(value).is_some() {
        return;
    }
    match value.get_ref().as_table() {
        // The span of a table with a header of its own covers only that header.
        Some(table) if !reader.is_inline(value) => table.iter().for_each(|(_, value)| conceal(reader, value)),
        _ => reader.conceal(value.span()),
    }
}

fn source(value: &Value<'_>) -> Option<Secret> {
    let mut entries = value.get_ref().as_table()?.iter();
    let ((key, value), None) = (entries.next()?, entries.next()) else { return None };
    let text = value.get_ref().as_str()?;
    match key.get_ref().as_ref() {
        "env" if is_variable(text) => Some(Secret::Env(text.to_owned())),
        "file" if !text.is_empty() => Some(Secret::File(PathBuf::from(text))),
        _ => None,
    }
}

/// Returns whether a text can be the name of an environment variable, and not a secret in its place.
fn is_variable(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

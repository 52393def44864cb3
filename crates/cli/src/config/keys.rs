//! Every setting, read from the file's schema, so that a new key gets its environment variable automatically.

use serde_json::Value;

/// The sections whose settings have environment variables. Policies have none, because they are deployed as a whole.
const SECTIONS: [&str; 7] = ["server", "work", "http", "signals", "lock", "acceptor", "ledger"];

/// A setting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    /// Its path in the file, such as `work.lease`.
    pub(crate) path: String,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Text,
    /// An integer or a text, such as a size.
    Either,
    Number,
    Truth,
}

impl Key {
    /// Returns the name of its variable: `HOLDOFF_WORK_LEASE` for `work.lease`, and `HOLDOFF_LISTEN` for the daemon's
    /// own `server.listen`.
    pub(crate) fn variable(&self) -> String {
        let path = self.path.strip_prefix("server.").unwrap_or(&self.path);
        format!("HOLDOFF_{}", path.replace('.', "_").to_uppercase())
    }

    /// Converts a variable's text into a TOML value of the setting's kind. Text that is not of this kind stays text,
    /// and the reader of the section reports it.
    pub(crate) fn value(&self, text: &str) -> toml::Value {
        let number = || {
            let whole = text.parse().map(toml::Value::Integer);
            whole.or_else(|_| text.parse().map(toml::Value::Float)).ok()
        };
        let value = match self.kind {
            Kind::Text => None,
            Kind::Either => text.parse().map(toml::Value::Integer).ok(),
            Kind::Number => number(),
            Kind::Truth => text.parse().map(toml::Value::Boolean).ok(),
        };
        value.unwrap_or_else(|| toml::Value::String(text.to_owned()))
    }
}

/// Returns every setting, in the order of the file.
pub(crate) fn all() -> Vec<Key> {
    let schema = holdoff_policy::schema();
    let mut keys = Vec::new();
    for section in SECTIONS {
        if let Some(node) = schema.pointer(&format!("/properties/{section}")) {
            collect(&schema, section, node, &mut keys);
        }
    }
    keys
}

fn collect(schema: &Value, path: &str, node: &Value, keys: &mut Vec<Key>) {
    let node = resolve(schema, node);
    if let Some(properties) = node.get("properties").and_then(Value::as_object) {
        for (name, inner) in properties {
            collect(schema, &format!("{path}.{name}"), inner, keys);
        }
        return;
    }
    if let Some(kind) = kind(node) {
        keys.push(Key { path: path.to_owned(), kind });
    }
}

/// Follows references and unwraps optional values to the schema of the value.
fn resolve<'s>(schema: &'s Value, node: &'s Value) -> &'s Value {
    if let Some(reference) = node.get("$ref").and_then(Value::as_str) {
        let target = schema.pointer(reference.trim_start_matches('#'));
        return target.map_or(node, |target| resolve(schema, target));
    }
    let choices = node.get("anyOf").and_then(Value::as_array);
    let is_null = |choice: &&Value| choice.get("type").and_then(Value::as_str) == Some("null");
    match choices
        .map(|choices| choices.iter().filter(|choice| !is_null(choice)).collect::<Vec<_>>())
        .as_deref()
    {
        Some([only]) => resolve(schema, only),
        _ => node,
    }
}

/// Returns the kind of a scalar value, or `None` for arrays, tables and unknown types.
fn kind(node: &Value) -> Option<Kind> {
    let types: Vec<&str> = match node.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let has = |name: &str| types.contains(&name);
    match types.as_slice() {
        _ if has("array") || has("object") => None,
        _ if has("boolean") => Some(Kind::Truth),
        _ if has("integer") || has("number") => Some(Kind::Number),
        [] if node.get("anyOf").is_some() => Some(Kind::Either),
        [] if node.get("oneOf").is_none() => None,
        _ => Some(Kind::Text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_a_variable_of_its_own() {
        let keys = all();
        let mut variables: Vec<String> = keys.iter().map(Key::variable).collect();
        for wanted in ["HOLDOFF_LISTEN", "HOLDOFF_STORE", "HOLDOFF_LOG_FORMAT", "HOLDOFF_WORK_HISTORY_KEEP"] {
            assert!(variables.iter().any(|variable| variable == wanted), "{wanted} in {variables:?}");
        }
        variables.sort();
        let count = variables.len();
        variables.dedup();
        assert_eq!(variables.len(), count);
    }

    #[test]
    fn a_variable_means_what_the_file_would_say() {
        let keys = all();
        let value = |path: &str, text: &str| keys.iter().find(|key| key.path == path).unwrap().value(text);
        assert_eq!(value("work.lease", "5m"), toml::Value::String("5m".into()));
        assert_eq!(value("work.max_steps", "7"), toml::Value::Integer(7));
        assert_eq!(value("work.max_payload", "7"), toml::Value::Integer(7));
        assert_eq!(value("work.max_payload", "1MiB"), toml::Value::String("1MiB".into()));
        assert_eq!(value("http.deny_private", "true"), toml::Value::Boolean(true));
        assert_eq!(value("http.destination.rate", "0.5"), toml::Value::Float(0.5));
        assert_eq!(value("work.max_steps", "many"), toml::Value::String("many".into()));
    }
}

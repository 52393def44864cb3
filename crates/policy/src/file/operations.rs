//! The key `default` and the tables `[operations]`, `[namespaces.NAME]` and `[classes.KIND]`.

use toml::de::DeTable;

use super::reader::{Reader, SpannedValue};
use crate::{Class, ClassMap, Grpc, OperationSettings, PolicyScope, PolicySet};

pub(super) const NAMESPACE_KEYS: &[&str] = &["default", "operations"];
pub(super) const OPERATION_KEYS: &[&str] = &["policy", "timeout", "lease"];

/// Reads the `default` and the `operations` of the file or of a namespace.
pub(super) fn read_scope(reader: &mut Reader<'_>, table: &DeTable<'_>, set: &PolicySet) -> PolicyScope {
    let mut scope = PolicyScope::default();
    if let Some(value) = table.get("default") {
        scope.default = policy_name(reader, value, "default", set);
    }
    let Some(operations) = reader.table_in(table, "operations") else { return scope };
    for (name, value) in operations {
        if name.get_ref().is_empty() {
            reader
                .problem(name.span(), "an operation has an empty name")
                .expected("a name such as \"user.login\"");
        } else if let Some(operation) = read_operation(reader, name.get_ref(), value, set) {
            scope.operations.insert(name.get_ref().to_string(), operation);
        }
    }
    scope
}

pub(super) fn read_namespaces(reader: &mut Reader<'_>, namespaces: &DeTable<'_>, set: &mut PolicySet) {
    for (name, value) in namespaces {
        if name.get_ref().is_empty() {
            reader.problem(name.span(), "a namespace has an empty name").expected("a name such as \"eu\"");
        }
        let name = name.get_ref();
        let Some(table) = reader.table(value, &format!("namespace `{name}`")) else { continue };
        reader.refuse_unknown_keys(&format!("in [namespaces.{name}]"), table, NAMESPACE_KEYS);
        let scope = read_scope(reader, table, set);
        *set.namespace_mut(name.as_ref()) = scope;
    }
}

fn read_operation(
    reader: &mut Reader<'_>,
    name: &str,
    value: &SpannedValue<'_>,
    set: &PolicySet,
) -> Option<OperationSettings> {
    let what = format!("operation \"{name}\"");
    let Some(table) = value.get_ref().as_table() else {
        return policy_name(reader, value, &what, set).map(OperationSettings::new);
    };
    let has_known_key = table.keys().any(|key| OPERATION_KEYS.contains(&key.get_ref().as_ref()));
    if !reader.is_inline(value) && !has_known_key {
        return unquoted(reader, name, table);
    }
    reader.refuse_unknown_keys(&format!("in {what}"), table, OPERATION_KEYS);
    let timeout = table.get("timeout").and_then(|value| reader.duration(value, "timeout"));
    let lease = table.get("lease").and_then(|value| reader.duration(value, "lease"));
    let Some(policy) = table.get("policy") else {
        reader.problem(value.span(), format!("{what} has no `policy`")).expected("{ policy = \"standard\" }");
        return None;
    };
    let policy = policy_name(reader, policy, "policy", set)?;
    Some(OperationSettings { policy, timeout, lease })
}

/// Reports an operation name without quotes: `user.login = "…"` is a table `user` with a key `login`.
fn unquoted(reader: &mut Reader<'_>, name: &str, table: &DeTable<'_>) -> Option<OperationSettings> {
    for (key, value) in table {
        let full = format!("{name}.{}", key.get_ref());
        match value.get_ref().as_table() {
            Some(deeper) if !reader.is_inline(value) => {
                unquoted(reader, &full, deeper);
            }
            _ => {
                reader
                    .problem(key.span(), format!("`{full}` needs quotes, because it has a dot"))
                    .expected(format!("\"{full}\" = …"));
            }
        }
    }
    None
}

fn policy_name(
    reader: &mut Reader<'_>,
    value: &SpannedValue<'_>,
    what: &str,
    set: &PolicySet,
) -> Option<String> {
    let name = reader.string(value, what, "the name of a policy in quotes")?;
    if reader.is_broken(name) {
        return None;
    }
    if set.policy(name).is_some() {
        return Some(name.to_owned());
    }
    let known: Vec<_> = set.policies().keys().map(String::as_str).collect();
    reader
        .problem(value.span(), format!("there is no policy `{name}`"))
        .expected(format!("one of {}", known.join(", ")))
        .nearest(name, known);
    None
}

pub(super) const CLASS_KINDS: &[&str] = &["http", "grpc", "sqlstate", "io"];

/// Reads the overrides into the map.
pub(super) fn read_classes(reader: &mut Reader<'_>, tables: &DeTable<'_>, map: &mut ClassMap) {
    reader.refuse_unknown_keys("in [classes]", tables, CLASS_KINDS);
    let words = Class::ALL.map(Class::name);
    for kind in CLASS_KINDS {
        let Some(table) = reader.table_in(tables, kind) else { continue };
        for (code, value) in table {
            let written = code.get_ref().as_ref();
            let Some(class) = reader.word(value, &format!("the class of {written}"), &words) else {
                continue;
            };
            let Ok(class) = class.parse() else { continue };
            if !set_class(map, kind, written, class) {
                let (expected, known) = class_codes(kind);
                reader
                    .problem(code.span(), format!("`{written}` is no {kind} code"))
                    .expected(expected)
                    .nearest(written, known);
            }
        }
    }
}

fn set_class(map: &mut ClassMap, kind: &str, code: &str, class: Class) -> bool {
    match kind {
        "http" => {
            let status = code.parse().ok().filter(|status| (100..=599).contains(status));
            status.map(|status| map.set_http(status, class)).is_some()
        }
        "grpc" => Grpc::from_name(code).map(|code| map.set_grpc(code, class)).is_some(),
        "sqlstate" => map.set_sqlstate(code, class),
        _ => map.set_io(code, class),
    }
}

fn class_codes(kind: &str) -> (&'static str, Vec<&'static str>) {
    match kind {
        "http" => ("a status from 100 to 599", Vec::new()),
        "grpc" => ("a code in capitals, such as UNAVAILABLE", Grpc::ALL.map(Grpc::name).to_vec()),
        "sqlstate" => ("five characters such as \"40001\", or two for a whole class", Vec::new()),
        _ => ("a kind such as connection_reset", ClassMap::io_names().collect()),
    }
}

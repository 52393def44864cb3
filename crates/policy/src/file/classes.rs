//! The tables `[classes.http]`, `[classes.grpc]`, `[classes.sqlstate]` and `[classes.io]`.

use toml::de::DeTable;

use super::reader::Reader;
use crate::{Class, ClassMap, Grpc};

pub(super) const KINDS: &[&str] = &["http", "grpc", "sqlstate", "io"];

/// Reads the overrides into the map.
pub(super) fn read(reader: &mut Reader<'_>, tables: &DeTable<'_>, map: &mut ClassMap) {
    reader.refuse_unknown_keys("in [classes]", tables, KINDS);
    let words = Class::ALL.map(Class::name);
    for kind in KINDS {
        let Some(table) = reader.table_in(tables, kind) else { continue };
        for (code, value) in table {
            let written = code.get_ref().as_ref();
            let Some(class) = reader.word(value, &format!("the class of {written}"), &words) else {
                continue;
            };
            let Ok(class) = class.parse() else { continue };
            if !set(map, kind, written, class) {
                let (expected, known) = codes(kind);
                reader
                    .problem(code.span(), format!("`{written}` is no {kind} code"))
                    .expected(expected)
                    .nearest(written, known);
            }
        }
    }
}

fn set(map: &mut ClassMap, kind: &str, code: &str, class: Class) -> bool {
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

fn codes(kind: &str) -> (&'static str, Vec<&'static str>) {
    match kind {
        "http" => ("a status from 100 to 599", Vec::new()),
        "grpc" => ("a code in capitals, such as UNAVAILABLE", Grpc::ALL.map(Grpc::name).to_vec()),
        "sqlstate" => ("five characters such as \"40001\", or two for a whole class", Vec::new()),
        _ => ("a kind such as connection_reset", ClassMap::io_names().collect()),
    }
}

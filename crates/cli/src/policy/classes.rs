//! `holdoff policy classes`

use std::io::Write;

use holdoff_policy::ClassMap;
use serde_json::json;

use crate::failure::Failure;
use crate::output::Table;

pub(super) fn run(classes: &ClassMap, json: bool) -> Result<(), Failure> {
    let mut out = anstream::stdout();
    let rows = classes.rows();
    if json {
        let rows: Vec<_> = rows
            .iter()
            .map(|row| {
                json!({
                    "kind": row.kind, "code": row.code, "name": row.name, "class": row.class.name(),
                    "unsafe_class": row.unsafe_class.map(holdoff_policy::Class::name), "overridden": row.overridden,
                })
            })
            .collect();
        return Ok(writeln!(out, "{}", json!(rows))?);
    }
    let mut table = Table::new(["", "code", "class", "if it must not happen twice", ""]);
    for row in rows {
        let note = if row.overridden { "set in the policy file".to_owned() } else { row.name.to_owned() };
        let once = row.unsafe_class.map_or_else(String::new, |class| class.to_string());
        table.row([row.kind.to_owned(), row.code, row.class.to_string(), once, note]);
    }
    table.print(&mut out)?;
    writeln!(out, "\n Other 5xx are transient where repeating is safe; everything else is permanent.")?;
    Ok(())
}

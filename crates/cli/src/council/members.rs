//! `holdoff council members`

use std::io::Write;
use std::process::ExitCode;

use super::{Desk, current};
use crate::failure::Failure;
use crate::output::Table;

pub(super) async fn list(desk: &Desk<'_>) -> Result<ExitCode, Failure> {
    let is_current = desk.catch_up().await?;
    let state = desk.council.state().await?;
    let (me, mut out) = (desk.council.key(), anstream::stdout());
    let members = state.machine().members();
    if desk.json {
        let members: Vec<_> = members
            .iter()
            .map(|(key, member)| {
                serde_json::json!({ "key": key, "name": member.name, "since": member.since.0, "is_me": *key == me })
            })
            .collect();
        let answer = serde_json::json!({
            "slot": state.applied().0, "chain": state.chain().to_string(), "is_current": is_current, "members": members,
        });
        writeln!(out, "{answer}")?;
        return Ok(current(is_current));
    }
    let mut table = Table::new(["name", "since slot", "key"]);
    for (key, member) in members {
        let me = if *key == me { " (this device)" } else { "" };
        table.row([format!("{}{me}", member.name), member.since.to_string(), key.to_string()]);
    }
    table.print(&mut out)?;
    Ok(current(is_current))
}

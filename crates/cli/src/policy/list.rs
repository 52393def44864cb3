//! `holdoff policy list` and `holdoff policy classes`

use std::io::Write;

use holdoff_policy::{Class, ClassMap, PRESETS, Policy, PolicySet};
use serde_json::json;

use super::describe;
use crate::error::CommandError;
use crate::output::{self, Table, range, time};

pub(super) fn run(set: &PolicySet, json: bool) -> Result<(), CommandError> {
    let mut out = output::stdout();
    if json {
        let policies: Vec<_> = set
            .policies()
            .iter()
            .map(|(name, policy)| {
                let total = policy.explain().total;
                let attempts = Some(policy.attempts()).filter(|attempts| *attempts != Policy::UNLIMITED);
                json!({
                    "policy": name,
                    "preset": !set.is_own(name),
                    "attempts": attempts,
                    "total_low_us": total.map(|total| total.low_us),
                    "total_high_us": total.map(|total| total.high_us),
                    "id": policy.id().to_string(),
                    "purpose": purpose(set, name),
                })
            })
            .collect();
        return Ok(writeln!(out, "{}", json!(policies))?);
    }
    let own = set.policies().keys().filter(|name| set.is_own(name)).map(String::as_str);
    let presets = PRESETS.iter().map(|(name, _)| *name).filter(|name| !set.is_own(name));
    let mut table = Table::new(["policy", "attempts", "total delay", "purpose"]);
    for name in own.chain(presets) {
        let Some(policy) = set.policy(name) else { continue };
        let (attempts, waits) = match policy.explain().total {
            Some(total) => (policy.attempts().to_string(), range(total.low_us, total.high_us)),
            None => ("unlimited".to_owned(), "unlimited".to_owned()),
        };
        let waits =
            policy.deadline().map_or(waits.clone(), |deadline| format!("{waits}, within {}", time(deadline)));
        let purpose = purpose(set, name).map_or_else(|| describe::sentence(policy), str::to_owned);
        table.row([name.to_owned(), attempts, waits, purpose]);
    }
    table.print(&mut out)?;
    Ok(())
}

/// Returns the purpose of a preset.
fn purpose(set: &PolicySet, name: &str) -> Option<&'static str> {
    let preset = PRESETS.iter().find(|(preset, _)| *preset == name && !set.is_own(name));
    preset.map(|(_, purpose)| *purpose)
}

pub(super) fn classes(classes: &ClassMap, json: bool) -> Result<(), CommandError> {
    let mut out = output::stdout();
    let rows = classes.rows();
    if json {
        let rows: Vec<_> = rows
            .iter()
            .map(|row| {
                json!({
                    "kind": row.kind, "code": row.code, "name": row.name, "class": row.class.name(),
                    "unsafe_class": row.unsafe_class.map(Class::name), "overridden": row.overridden,
                })
            })
            .collect();
        return Ok(writeln!(out, "{}", json!(rows))?);
    }
    let mut table = Table::new(["kind", "code", "class", "class if not idempotent", "name"]);
    for row in rows {
        let note = if row.overridden { "set in the policy file".to_owned() } else { row.name.to_owned() };
        let once = row.unsafe_class.map_or_else(String::new, |class| class.to_string());
        table.row([row.kind.to_owned(), row.code, row.class.to_string(), once, note]);
    }
    table.print(&mut out)?;
    writeln!(
        out,
        "\n Other 5xx codes are transient for idempotent requests; all other codes are permanent."
    )?;
    Ok(())
}

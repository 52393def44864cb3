//! `holdoff policy list`

use std::io::Write;

use holdoff_policy::{PRESETS, Policy, PolicySet};
use serde_json::json;

use super::describe;
use crate::failure::Failure;
use crate::output::{Table, range, time};

pub(super) fn run(set: &PolicySet, json: bool) -> Result<(), Failure> {
    let mut out = anstream::stdout();
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
    let mut table = Table::new(["policy", "tries", "waits in all", "for"]);
    for name in own.chain(presets) {
        let Some(policy) = set.policy(name) else { continue };
        let (tries, waits) = match policy.explain().total {
            Some(total) => (policy.attempts().to_string(), range(total.low_us, total.high_us)),
            None => ("unlimited".to_owned(), "no end".to_owned()),
        };
        let waits =
            policy.deadline().map_or(waits.clone(), |deadline| format!("{waits}, within {}", time(deadline)));
        let purpose = purpose(set, name).map_or_else(|| describe::sentence(policy), str::to_owned);
        table.row([name.to_owned(), tries, waits, purpose]);
    }
    table.print(&mut out)?;
    Ok(())
}

/// Returns the purpose of a preset.
fn purpose(set: &PolicySet, name: &str) -> Option<&'static str> {
    let preset = PRESETS.iter().find(|(preset, _)| *preset == name && !set.is_own(name));
    preset.map(|(_, purpose)| *purpose)
}

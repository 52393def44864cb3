//! `holdoff policy list`

use std::io::Write;

use holdoff_policy::{PRESETS, PolicySet};
use serde_json::json;

use super::describe;
use crate::failure::Failure;
use crate::output::{Table, range};

pub(super) fn run(set: &PolicySet, json: bool) -> Result<(), Failure> {
    let mut out = anstream::stdout();
    if json {
        let policies: Vec<_> = set
            .policies()
            .iter()
            .map(|(name, policy)| {
                let (low, high) = policy.explain().total_us();
                json!({
                    "policy": name,
                    "preset": !set.is_own(name),
                    "attempts": policy.attempts(),
                    "total_low_us": low,
                    "total_high_us": high,
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
        let explanation = policy.explain();
        let (low, high) = explanation.total_us();
        let tries = if explanation.more { "many".to_owned() } else { policy.attempts().to_string() };
        let purpose = purpose(set, name).map_or_else(|| describe::sentence(policy), str::to_owned);
        table.row([name.to_owned(), tries, range(low, high), purpose]);
    }
    table.print(&mut out)?;
    Ok(())
}

/// What a preset is for.
fn purpose(set: &PolicySet, name: &str) -> Option<&'static str> {
    let preset = PRESETS.iter().find(|(preset, _)| *preset == name && !set.is_own(name));
    preset.map(|(_, purpose)| *purpose)
}

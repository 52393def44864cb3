//! Writes results to files.

use std::path::Path;

use holdoff_policy::PolicySet;
use holdoff_sim::report::{charts, csv, page, ranks_csv};
use holdoff_sim::{Plan, Row, Rule};

use super::params;
use crate::failure::Failure;

/// Files that only some runs write.
const STALE: [&str; 15] = [
    "time-against-clients.svg",
    "calls-against-clients.svg",
    "calls-over-time.svg",
    "delays.svg",
    "done-over-time.svg",
    "rank-by-id.svg",
    "ranks.csv",
    "thought-first.svg",
    "thought-first-sticky.svg",
    "thought-first-hysteresis.svg",
    "thought-first-slow.svg",
    "thought-holdoff.svg",
    "recovery.svg",
    "known.svg",
    "healing.svg",
];

/// Writes the report, its charts and its data.
pub(super) fn write(folder: &Path, plan: &Plan, rows: &[Row]) -> Result<(), Failure> {
    let cannot =
        |error: std::io::Error| Failure::Failed(format!("cannot write to {}: {error}", folder.display()));
    let (parameters, policies) = (params::text(&plan.scenario)?, policies(plan));
    let command = command(plan);
    let sources = [&command, &parameters, &policies].map(String::as_str);
    let mut files = vec![
        ("report.html".to_owned(), page(plan, rows, &sources)),
        ("results.csv".to_owned(), csv(rows)),
        ("results.json".to_owned(), format!("{:#}\n", serde_json::json!(rows))),
        ("params.toml".to_owned(), parameters.clone()),
        ("policies.toml".to_owned(), policies.clone()),
    ];
    files.extend(charts(rows).into_iter().map(|named| (format!("{}.svg", named.name), named.chart.svg())));
    files.extend(ranks_csv(rows).map(|ranks| ("ranks.csv".to_owned(), ranks)));
    std::fs::create_dir_all(folder).map_err(cannot)?;
    // Removes files of an earlier run that this run does not write, because they would be misleading.
    for stale in STALE {
        if !files.iter().any(|(name, _)| name == stale) && folder.join(stale).exists() {
            std::fs::remove_file(folder.join(stale)).map_err(cannot)?;
        }
    }
    for (name, text) in &files {
        std::fs::write(folder.join(name), text).map_err(cannot)?;
    }
    anstream::eprintln!("wrote {} and {} more files", folder.join("report.html").display(), files.len() - 1);
    Ok(())
}

/// Returns the policies of this run, so that a later change of the policy file does not affect the report. The
/// classic strategies are not policies; the lab knows them by name.
fn policies(plan: &Plan) -> String {
    let mut set = PolicySet::default();
    for strategy in &plan.strategies {
        if let Rule::Policy(policy) = strategy.rule() {
            set.define(strategy.name(), (**policy).clone());
        }
    }
    set.to_toml()
}

/// Returns the command that reproduces the results when run in the folder of the report.
fn command(plan: &Plan) -> String {
    let policies: Vec<_> =
        plan.strategies.iter().map(|strategy| format!(" --policy {}", quoted(strategy.name()))).collect();
    let clients: Vec<_> = plan.clients.iter().map(ToString::to_string).collect();
    format!(
        "holdoff sim {} --config policies.toml --params params.toml{} --clients {} --runs {} --seed {}",
        plan.scenario.name(),
        policies.concat(),
        clients.join(","),
        plan.runs,
        plan.seed
    )
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) && !word.is_empty();
    if is_plain { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

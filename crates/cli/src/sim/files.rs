//! Results in files.

use std::path::Path;

use holdoff_sim::report::{charts, csv, page};
use holdoff_sim::{Plan, Row};

use super::params;
use crate::failure::Failure;

/// Writes the report, its charts and its data.
pub(super) fn write(folder: &Path, plan: &Plan, rows: &[Row]) -> Result<(), Failure> {
    let cannot =
        |error: std::io::Error| Failure::Failed(format!("cannot write to {}: {error}", folder.display()));
    let parameters = params::text(&plan.scenario)?;
    let mut files = vec![
        ("report.html".to_owned(), page(plan, rows, &parameters, &command(plan))),
        ("results.csv".to_owned(), csv(rows)),
        ("results.json".to_owned(), format!("{:#}\n", serde_json::json!(rows))),
        ("params.toml".to_owned(), parameters),
    ];
    files.extend(charts(rows).into_iter().map(|named| (format!("{}.svg", named.name), named.chart.svg())));
    std::fs::create_dir_all(folder).map_err(cannot)?;
    for (name, text) in &files {
        std::fs::write(folder.join(name), text).map_err(cannot)?;
    }
    anstream::eprintln!("wrote {} and {} more files", folder.join("report.html").display(), files.len() - 1);
    Ok(())
}

/// The command that gives the same results.
fn command(plan: &Plan) -> String {
    let policies: Vec<_> =
        plan.strategies.iter().map(|strategy| format!(" --policy {}", strategy.name())).collect();
    let clients: Vec<_> = plan.clients.iter().map(ToString::to_string).collect();
    format!(
        "holdoff sim {} --params params.toml{} --clients {} --runs {} --seed {}",
        plan.scenario.name(),
        policies.concat(),
        clients.join(","),
        plan.runs,
        plan.seed
    )
}

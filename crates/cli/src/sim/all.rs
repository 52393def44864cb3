//! The complete table of elections, compared with its limits.

use std::io::Write;
use std::process::ExitCode;

use holdoff_sim::report::rounded;
use holdoff_sim::scenario::Scenario;
use holdoff_sim::scenario::election::{Algorithm, FaultKind, Params, acceptance};
use holdoff_sim::{Plan, Pooled, ResultRow, Strategy};

use super::{SimArgs, output};
use crate::error::CommandError;
use crate::output::Table;

/// The default number of runs per row.
pub(super) const RUNS: u32 = 10;

/// Runs every situation. Fails if holdoff's algorithm misses a limit in any of them.
pub(super) fn run(args: &SimArgs, threads: usize, as_json: bool) -> Result<ExitCode, CommandError> {
    if args.scenario != "election" {
        return Err(CommandError::Usage(format!("--all needs the scenario election, not {}", args.scenario)));
    }
    let strategies = algorithms(&args.policies)?;
    let (mut shown, mut table) = (Vec::new(), Table::new(HEAD));
    let mut missed = Vec::new();
    for params in acceptance::table() {
        let plan = Plan {
            scenario: Scenario::Election(params.clone()),
            strategies: strategies.clone(),
            clients: vec![params.nodes],
            runs: args.runs.unwrap_or(RUNS),
            seed: args.seed,
            threads,
        };
        for row in super::run_with_progress(&plan) {
            table.row(cells(&params, &row));
            if row.policy == Algorithm::Holdoff.name() {
                let situation = situation(&params);
                missed.extend(
                    acceptance::missed(&params, &row).into_iter().map(|bar| format!("{situation}: {bar}")),
                );
            }
            shown.push(serde_json::json!({ "params": params, "row": output::without_plots(&row) }));
        }
    }
    if as_json {
        writeln!(std::io::stdout(), "{}", serde_json::json!(shown))?;
    } else {
        table.print(&mut crate::output::stdout())?;
    }
    if missed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    Err(CommandError::Failed(format!("holdoff misses acceptance limits\n{}", missed.join("\n"))))
}

/// Returns the named election algorithms, or holdoff's by default.
fn algorithms(names: &[String]) -> Result<Vec<Strategy>, CommandError> {
    if names.is_empty() {
        return Ok(vec![Strategy::election(Algorithm::Holdoff)]);
    }
    names.iter().map(|name| super::algorithm(name)).collect()
}

const HEAD: [&str; 15] = [
    "nodes",
    "loss",
    "fault",
    "policy",
    "failed",
    "first p99",
    "changes",
    "two at once",
    "faults",
    "recovery p50",
    "p99",
    "known p99",
    "healing worst",
    "without %",
    "bytes per node s",
];

fn cells(params: &Params, row: &ResultRow) -> Vec<String> {
    let figure = |name: &str| rounded(row.figures.get(name).copied().unwrap_or_default().mean);
    let of = |name: &str, part: fn(&Pooled) -> f64| {
        let pooled = row.pooled.get(name).filter(|pooled| pooled.count > 0);
        pooled.map_or_else(|| "–".to_owned(), |pooled| output::ms(part(pooled)))
    };
    vec![
        params.nodes.to_string(),
        format!("{} %", rounded(params.loss * 100.0)),
        fault(params.fault).to_owned(),
        row.policy.clone(),
        rounded(row.failed.mean),
        output::ms(row.time_ms.p99),
        figure("changes"),
        figure("two_at_once"),
        figure("faults"),
        of("recovery", |pooled| pooled.ms.p50),
        of("recovery", |pooled| pooled.ms.p99),
        of("known", |pooled| pooled.ms.p99),
        of("healing", |pooled| pooled.worst_ms),
        figure("without_percent"),
        figure("bytes_per_node_s"),
    ]
}

fn situation(params: &Params) -> String {
    let Params { nodes, loss, .. } = params;
    format!("{nodes} nodes, loss {loss}, fault {}", fault(params.fault))
}

fn fault(fault: FaultKind) -> &'static str {
    match fault {
        FaultKind::None => "none",
        FaultKind::Crash => "crash",
        FaultKind::Partition => "partition",
        FaultKind::Churn => "churn",
    }
}

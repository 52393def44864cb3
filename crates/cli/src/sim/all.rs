//! The complete table of elections, compared with its limits.

use std::io::Write;
use std::process::ExitCode;

use holdoff_sim::report::rounded;
use holdoff_sim::scenario::Scenario;
use holdoff_sim::scenario::election::{Fault, Params, View, Way, bars};
use holdoff_sim::{Plan, Pooled, Row, Strategy};

use super::show;
use crate::args::SimArgs;
use crate::failure::Failure;
use crate::output::Table;

/// The default number of runs per row.
const RUNS: u32 = 10;

/// Runs every situation. Fails if holdoff's algorithm misses a limit in any of them.
pub(super) fn run(command: &SimArgs, threads: usize, as_json: bool) -> Result<ExitCode, Failure> {
    if command.scenario != "election" {
        return Err(Failure::Usage(format!("{} has no table; election has", command.scenario)));
    }
    let strategies = ways(&command.policies)?;
    let (mut shown, mut table) = (Vec::new(), Table::new(HEAD));
    let mut missed = Vec::new();
    for params in bars::table() {
        let plan = Plan {
            scenario: Scenario::Election(params.clone()),
            strategies: strategies.clone(),
            clients: vec![params.nodes],
            runs: command.runs.unwrap_or(RUNS),
            seed: command.seed,
            threads,
        };
        for row in super::run_with_progress(&plan) {
            table.row(cells(&params, &row));
            if row.policy == Way::Holdoff.name() {
                let situation = situation(&params);
                missed
                    .extend(bars::missed(&params, &row).into_iter().map(|bar| format!("{situation}: {bar}")));
            }
            shown.push(serde_json::json!({ "params": params, "row": show::without_plots(&row) }));
        }
    }
    if as_json {
        writeln!(std::io::stdout(), "{}", serde_json::json!(shown))?;
    } else {
        table.print(&mut anstream::stdout())?;
    }
    if missed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::Failed(format!("holdoff misses what it is held to\n{}", missed.join("\n"))))
}

/// Returns the named election algorithms, or holdoff's by default.
fn ways(names: &[String]) -> Result<Vec<Strategy>, Failure> {
    if names.is_empty() {
        return Ok(vec![Strategy::way(Way::Holdoff)]);
    }
    names.iter().map(|name| super::way(name)).collect()
}

const HEAD: [&str; 16] = [
    "nodes",
    "view",
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

fn cells(params: &Params, row: &Row) -> Vec<String> {
    let figure = |name: &str| rounded(row.figures.get(name).copied().unwrap_or_default().mean);
    let of = |name: &str, part: fn(&Pooled) -> f64| {
        let pooled = row.pooled.get(name).filter(|pooled| pooled.count > 0);
        pooled.map_or_else(|| "–".to_owned(), |pooled| show::ms(part(pooled)))
    };
    vec![
        params.nodes.to_string(),
        view(params.view).to_owned(),
        format!("{} %", rounded(params.loss * 100.0)),
        fault(params.fault).to_owned(),
        row.policy.clone(),
        rounded(row.failed.mean),
        show::ms(row.time_ms.p99),
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
    format!("{nodes} nodes, {} view, loss {loss}, fault {}", view(params.view), fault(params.fault))
}

fn view(view: View) -> &'static str {
    match view {
        View::Mesh => "mesh",
        View::Partial => "partial",
    }
}

fn fault(fault: Fault) -> &'static str {
    match fault {
        Fault::None => "none",
        Fault::Crash => "crash",
        Fault::Partition => "partition",
        Fault::Churn => "churn",
    }
}

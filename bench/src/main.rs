//! Measures holdoff beside its peers, in one run, and prints ratios.
//!
//! `cargo xtask bench [NAME] [--json]` builds and runs this program. Machines are noisy, so every figure is
//! the minimum of thread CPU time over many short rounds, in which ours and the peer's alternate. Only
//! `work`, `store`, `lock`, `queries`, `server`, `ledger` and the durable part of `council`, which involve a
//! disk and other processes, use wall-clock time.

mod council;
mod ledger;
mod lock;
mod measure;
mod policy;
mod queries;
mod retry;
mod row;
mod server;
mod sim;
mod space;
mod store;
mod work;

use std::process::ExitCode;

use row::Row;

type Suite = fn() -> Vec<Row>;

const SUITES: [(&str, Suite); 13] = [
    ("decide", policy::decide_rows),
    ("retry", retry::rows),
    ("budget", policy::budget_rows),
    ("sim", sim::rows),
    ("work", work::rows),
    ("store", store::rows),
    ("space", space::rows),
    ("lock", lock::rows),
    ("queries", queries::rows),
    ("server", server::rows),
    ("latency", server::latency::rows),
    ("council", council::rows),
    ("ledger", ledger::rows),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let part =
        work::play(&arguments).or_else(|| server::play(&arguments)).or_else(|| council::play(&arguments));
    if let Some(code) = part.or_else(|| server::soak(&arguments)) {
        return code;
    }
    let (flags, names): (Vec<_>, Vec<_>) =
        arguments.into_iter().partition(|argument| argument.starts_with("--"));
    let known = SUITES.map(|(name, _)| name);
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        eprintln!("unknown benchmark `{unknown}`: use one of {}", known.join(", "));
        return ExitCode::from(2);
    }
    let wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    let rows: Vec<Row> =
        SUITES.iter().filter(|(name, _)| wanted(name)).flat_map(|(_, suite)| suite()).collect();
    if flags.iter().any(|flag| flag == "--json") {
        println!("{}", serde_json::json!(rows));
    } else {
        row::print(&rows);
    }
    if rows.iter().all(|row| row.holds) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

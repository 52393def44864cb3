//! Measures the effect of a wrong count on contention-aware backoff:
//! `cargo run --release -p holdoff-sim --example miscount`.
//!
//! Prints time and writes of the experiment `row` as shares of full jitter's, with standard errors.

use holdoff_sim::scenario::{Scenario, row};
use holdoff_sim::{Plan, ResultRow, Strategy, Summary, run};

const CLIENTS: [u32; 3] = [10, 50, 100];
const RUNS: u32 = 2000;

fn main() {
    let full = rows("full", row::Params::default());
    let with_error = |contenders_error| row::Params { contenders_error, ..row::Params::default() };
    let cases = [
        ("a tenth", with_error(0.1)),
        ("half", with_error(0.5)),
        ("true", with_error(1.0)),
        ("double", with_error(2.0)),
        ("ten times", with_error(10.0)),
        ("stale", row::Params { contenders_stale: true, ..row::Params::default() }),
        ("unknown", row::Params { contenders_known: false, ..row::Params::default() }),
    ];
    for (name, params) in cases {
        println!("| {name} | {} |", shares(&rows("contention", params), &full));
    }
    println!("| preset `contended` | {} |", shares(&rows("contended", row::Params::default()), &full));
}

fn shares(rows: &[ResultRow], full: &[ResultRow]) -> String {
    let pair = |(own, full): (&ResultRow, &ResultRow)| {
        format!("{} | {}", share(own.time_ms, full.time_ms), share(own.calls, full.calls))
    };
    rows.iter().zip(full).map(pair).collect::<Vec<_>>().join(" | ")
}

fn rows(strategy: &str, params: row::Params) -> Vec<ResultRow> {
    let strategies = Strategy::named(strategy).into_iter().collect();
    let scenario = Scenario::Row(params);
    run(
        &Plan { scenario, strategies, clients: CLIENTS.to_vec(), runs: RUNS, seed: 1, threads: 2 },
        &|_, _| {},
    )
}

/// Returns one mean as a share of another, with the standard error of a quotient.
fn share(own: Summary, full: Summary) -> String {
    let ratio = own.mean / full.mean;
    format!("{ratio:.3} ± {:.4}", ratio * (own.se / own.mean).hypot(full.se / full.mean))
}

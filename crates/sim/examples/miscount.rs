//! Measures the effect of a wrong count on contention-aware backoff:
//! `cargo run --release -p holdoff-sim --example miscount`.
//!
//! Prints time and writes of the experiment `row` as shares of full jitter's, with standard errors.

use holdoff_sim::scenario::{Scenario, row};
use holdoff_sim::{Plan, Row, Strategy, Summary, run};

const CLIENTS: [u32; 3] = [10, 50, 100];
const RUNS: u32 = 2000;

fn main() {
    let full = rows("full", row::Params::default());
    let told = |crowd_error| row::Params { crowd_error, ..row::Params::default() };
    let cases = [
        ("a tenth", told(0.1)),
        ("half", told(0.5)),
        ("true", told(1.0)),
        ("double", told(2.0)),
        ("ten times", told(10.0)),
        ("stale", row::Params { crowd_stale: true, ..row::Params::default() }),
        ("unknown", row::Params { crowd_known: false, ..row::Params::default() }),
    ];
    for (name, params) in cases {
        println!("| {name} | {} |", shares(&rows("crowd", params), &full));
    }
    println!("| preset `contended` | {} |", shares(&rows("contended", row::Params::default()), &full));
}

fn shares(rows: &[Row], full: &[Row]) -> String {
    let pair = |(own, full): (&Row, &Row)| {
        format!("{} | {}", share(own.time_ms, full.time_ms), share(own.calls, full.calls))
    };
    rows.iter().zip(full).map(pair).collect::<Vec<_>>().join(" | ")
}

fn rows(strategy: &str, params: row::Params) -> Vec<Row> {
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

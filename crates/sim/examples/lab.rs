//! Prints a table: `cargo run --release -p holdoff-sim --example lab -- SCENARIO RUNS CLIENTS STRATEGY…`.

use holdoff_sim::scenario::Scenario;
use holdoff_sim::{Plan, Strategy, run};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let scenario = words
        .first()
        .and_then(|name| Scenario::named(name))
        .unwrap_or_else(|| Scenario::Row(holdoff_sim::scenario::row::Params::default()));
    let runs = words.get(1).and_then(|runs| runs.parse().ok()).unwrap_or(100);
    let clients = words.get(2).and_then(|clients| clients.parse().ok()).unwrap_or(scenario.clients());
    let named: Vec<Strategy> = words.iter().skip(3).filter_map(|name| Strategy::named(name)).collect();
    let usual = scenario.usual_strategies().iter().filter_map(|name| Strategy::named(name));
    let strategies = if named.is_empty() { usual.collect() } else { named };
    let plan = Plan { scenario, strategies, clients: vec![clients], runs, seed: 1, threads: 2 };
    for row in run(&plan, &|_, _| {}) {
        let (time, calls) = (row.time_ms, row.calls);
        println!(
            "{:<13} time {:>9.1} ± {:<6.1} calls {:>9.1} ± {:<6.1}",
            row.policy, time.mean, time.se, calls.mean, calls.se
        );
        for (name, figure) in &row.figures {
            println!("{:>30} {:>10.2} ± {:.2}", name, figure.mean, figure.se);
        }
    }
}

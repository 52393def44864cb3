//! Searches for the best plain policy under contention, without a count of contenders:
//! `cargo run --release -p holdoff-sim --example contended`.
//!
//! Every candidate runs the experiment `row` with the same seeds as classic full jitter. A candidate qualifies if it is
//! clearly no worse than full jitter with 10, 50 and 100 clients, neither in time nor in writes. The example prints the
//! best candidates with more runs, and also with a thousand clients: there a low cap costs writes.
#![allow(clippy::indexing_slicing, clippy::expect_used, reason = "a search may fail loudly")]

use holdoff_policy::{Growth, Jitter, Policy};
use holdoff_sim::scenario::{Scenario, row};
use holdoff_sim::{Plan, ResultRow, Strategy, run};
use std::time::Duration;

const CLIENTS: [u32; 3] = [10, 50, 100];
const MANY: u32 = 1000;

struct Candidate {
    strategy: Strategy,
    /// Time and writes as shares of full jitter's, one pair for each number of clients.
    ratios: Vec<(f64, f64)>,
}

impl Candidate {
    fn worst(&self) -> f64 {
        self.ratios.iter().flat_map(|(time, writes)| [*time, *writes]).fold(0.0, f64::max)
    }

    fn product(&self) -> f64 {
        self.ratios.iter().map(|(time, writes)| time * writes).product()
    }
}

fn main() {
    let mut found = compare(candidates(), &CLIENTS, 150);
    found.retain(|candidate| candidate.worst() < 0.975);
    found.sort_by(|a, b| a.product().total_cmp(&b.product()));
    println!("{} candidates are no worse; the best ones again, with 2000 runs", found.len());
    let best: Vec<Strategy> = found.into_iter().take(24).map(|candidate| candidate.strategy).collect();
    let among_many = compare(best.clone(), &[MANY], 20);
    for (candidate, many) in compare(best, &CLIENTS, 2000).into_iter().zip(among_many) {
        let ratios: Vec<String> = (candidate.ratios.iter().chain(&many.ratios))
            .map(|(time, writes)| format!("{time:.3}/{writes:.3}"))
            .collect();
        println!("{:<44} {}", candidate.strategy.name(), ratios.join("  "));
    }
}

fn candidates() -> Vec<Strategy> {
    let ms = Duration::from_millis;
    let mut growths = Vec::new();
    for base in [20, 30, 40, 50, 60, 65, 70, 75, 80, 100] {
        for factor in [1.2, 1.25, 1.3, 1.35, 1.4, 1.45, 1.5, 1.6, 2.0] {
            growths.push((format!("exponential {base}ms x{factor}"), Growth::exponential(ms(base), factor)));
        }
        for step in [10, 20, 30, 40, 50, 60] {
            growths.push((format!("linear {base}ms +{step}ms"), Growth::linear(ms(base), ms(step))));
        }
        growths.push((format!("fibonacci {base}ms"), Growth::fibonacci(ms(base))));
    }
    let jitters = [("full", Jitter::Full), ("equal", Jitter::Equal)];
    let mut strategies = Vec::new();
    for (growth_name, growth) in growths {
        for (jitter_name, jitter) in jitters {
            for cap in [1000, 2000] {
                let policy = Policy::builder(growth.clone())
                    .jitter(jitter)
                    .cap(ms(cap))
                    .attempts(Policy::UNLIMITED)
                    .build()
                    .expect("valid");
                strategies.push(Strategy::policy(format!("{growth_name} {jitter_name} cap {cap}ms"), policy));
            }
        }
    }
    strategies
}

fn compare(candidates: Vec<Strategy>, clients: &[u32], runs: u32) -> Vec<Candidate> {
    let full = Strategy::named("full").expect("a classic");
    let strategies: Vec<Strategy> = std::iter::once(full).chain(candidates).collect();
    let columns = strategies.len();
    let scenario = Scenario::Row(row::Params::default());
    let plan = Plan { scenario, strategies, clients: clients.to_vec(), runs, seed: 7, threads: 2 };
    let rows = run(&plan, &|_, _| {});
    let by_clients: Vec<&[ResultRow]> = rows.chunks(columns).collect();
    let ratio = |column: usize| {
        by_clients.iter().map(move |rows| {
            let (full, own) = (&rows[0], &rows[column]);
            (own.time_ms.mean / full.time_ms.mean, own.calls.mean / full.calls.mean)
        })
    };
    let candidate = |column: usize| Candidate {
        strategy: plan.strategies[column].clone(),
        ratios: ratio(column).collect(),
    };
    (1..columns).map(candidate).collect()
}

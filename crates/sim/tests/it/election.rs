//! Elections: the limits of holdoff's algorithm, and the behaviour of the source document's algorithm.

use holdoff_sim::scenario::Scenario;
use holdoff_sim::scenario::election::{self, Algorithm, FaultKind, Outcome, Params, acceptance};
use holdoff_sim::{Micros, Plan, ResultRow, Strategy};

const FAULTS: [FaultKind; 4] = [FaultKind::None, FaultKind::Crash, FaultKind::Partition, FaultKind::Churn];

fn run(params: &Params, algorithm: Algorithm, seed: u64) -> Outcome {
    election::run(params, &Strategy::election(algorithm), seed)
}

/// Returns the row of one algorithm over some runs.
fn row(params: &Params, algorithm: Algorithm, runs: u32) -> ResultRow {
    let scenario = Scenario::Election(params.clone());
    assert_eq!(scenario.check(), Ok(()), "{params:?}");
    let (strategies, clients) = (vec![Strategy::election(algorithm)], vec![params.nodes]);
    let plan = Plan { scenario, strategies, clients, runs, seed: 1, threads: 2 };
    holdoff_sim::run(&plan, &|_, _| {}).remove(0)
}

fn of(nodes: u32, loss: f64, fault: FaultKind) -> Params {
    Params { nodes, loss, fault, ..Params::default() }
}

/// Returns the command that repeats this run.
fn replay(params: &Params, runs: u32) -> String {
    let Params { nodes, loss, fault, duration, .. } = params;
    let fault = format!("{fault:?}").to_lowercase();
    format!(
        "replay: holdoff sim election --policy holdoff --nodes {nodes} --set loss={loss} --set fault={fault} \
         --set duration={duration} --runs {runs} --seed 1"
    )
}

/// A few of the situations of `holdoff sim election --all`, with shorter runs.
#[test]
fn holdoff_keeps_its_limits() {
    for nodes in [3, 5, 10, 50] {
        for loss in [0.0, 0.05] {
            for fault in FAULTS {
                let duration = Micros::from_secs(if nodes > 10 { 150 } else { 300 });
                let params = Params { duration, ..of(nodes, loss, fault) };
                let missed = acceptance::missed(&params, &row(&params, Algorithm::Holdoff, 3));
                assert!(missed.is_empty(), "{missed:?}\n{}", replay(&params, 3));
            }
        }
    }
}

#[test]
fn a_hundred_nodes_keep_the_limits_with_two_kilobytes_per_second_each() {
    for fault in [FaultKind::None, FaultKind::Crash] {
        let params = of(100, 0.01, fault);
        let missed = acceptance::missed(&params, &row(&params, Algorithm::Holdoff, 2));
        assert!(missed.is_empty(), "{missed:?}\n{}", replay(&params, 2));
    }
}

/// Limits that no algorithm could miss would prove nothing.
#[test]
fn the_baseline_misses_the_limits() {
    let crashes = of(10, 0.0, FaultKind::Crash);
    let missed = acceptance::missed(&crashes, &row(&crashes, Algorithm::Baseline, 3)).join("; ");
    assert!(missed.contains("two leaders at once") && missed.contains("ms to recover, p50"), "{missed}");
}

/// A crashed leader keeps the votes of all nodes, and leads again when it has restarted.
#[test]
fn the_baseline_follows_a_dead_leader() {
    for algorithm in [Algorithm::Baseline, Algorithm::Sticky, Algorithm::Hysteresis, Algorithm::SlowRounds] {
        for down_s in [5, 15] {
            let down_for = Micros::from_secs(down_s);
            let params = Params { down_for, ..of(10, 0.0, FaultKind::Crash) };
            let recovery = &row(&params, algorithm, 3).pooled["recovery"];
            assert!(recovery.count >= 12, "{algorithm:?}: {}", recovery.count);
            let shortest_us = recovery.sorted_us.first().copied().unwrap();
            assert!(shortest_us >= down_for.0, "{algorithm:?}, down for {down_s} s: {shortest_us}");
        }
    }
}

/// The other nodes do not wait for the crashed one.
#[test]
fn holdoff_replaces_a_dead_leader() {
    for seed in 0..5 {
        let params = Params { down_for: Micros::from_secs(15), ..of(10, 0.01, FaultKind::Crash) };
        let outcome = run(&params, Algorithm::Holdoff, seed);
        assert!(outcome.faults >= 4 && outcome.changes == outcome.faults, "seed {seed}: {outcome:?}");
        assert!(outcome.recoveries_us.iter().all(|us| *us < 6_000_000), "seed {seed}: {outcome:?}");
        assert_eq!((outcome.two_at_once, outcome.diverged), (0, 0), "seed {seed}");
    }
}

/// The named node need not wait for the end of a random election timeout.
#[test]
fn a_named_node_that_campaigns_at_once_leads_sooner() {
    let first = |named_campaigns| {
        let params =
            Params { named_campaigns, duration: Micros::from_secs(5), ..of(3, 0.0, FaultKind::None) };
        row(&params, Algorithm::Holdoff, 50).time_ms
    };
    let (runs, waits) = (first(true), first(false));
    assert!(runs.p99 <= 1_500.0 && runs.mean < waits.mean, "{runs:?} {waits:?}");
}

/// A half without a majority of voters decides nothing, and later receives the entries that it missed.
#[test]
fn the_log_does_not_diverge_in_a_partition() {
    let mut changes = 0;
    for seed in 0..5 {
        let params = Params { duration: Micros::from_secs(300), ..of(10, 0.05, FaultKind::Partition) };
        let outcome = run(&params, Algorithm::Holdoff, seed);
        assert!(outcome.faults >= 4 && outcome.healings_us.len() as u64 == outcome.faults, "seed {seed}");
        assert_eq!((outcome.two_at_once, outcome.diverged, outcome.unrecovered), (0, 0, 0), "seed {seed}");
        changes += outcome.changes;
    }
    assert!(changes > 0, "a leader was never on the smaller side");
}

#[test]
fn a_single_node_leads_itself() {
    for algorithm in Algorithm::ALL {
        let params = Params { nodes: 1, fault: FaultKind::None, ..Params::default() };
        let outcome = run(&params, algorithm, 1);
        assert!(outcome.first_us.is_some_and(|us| us <= 3_000_000), "{algorithm:?}: {outcome:?}");
        assert_eq!((outcome.changes, outcome.two_at_once), (0, 0), "{algorithm:?}");
    }
}

#[test]
fn a_strategy_without_an_election_algorithm_does_nothing() {
    let outcome = election::run(&Params::default(), &Strategy::named("full").unwrap(), 1);
    assert_eq!(outcome, Outcome::default());
    assert_eq!(run(&Params { nodes: 0, ..Params::default() }, Algorithm::Holdoff, 1), Outcome::default());
    assert!(Scenario::named("election").unwrap().strategy("full").is_none());
    assert!(Scenario::named("row").unwrap().strategy("baseline").is_none());
}

//! Elections: the limits of holdoff's algorithm, and the behaviour of the source document's algorithm.

use holdoff_sim::scenario::Scenario;
use holdoff_sim::scenario::election::{self, Fault, Outcome, Params, View, Way, bars};
use holdoff_sim::{Micros, Plan, Row, Strategy};

const FAULTS: [Fault; 4] = [Fault::None, Fault::Crash, Fault::Partition, Fault::Churn];

fn run(params: &Params, way: Way, seed: u64) -> Outcome {
    election::run(params, &Strategy::way(way), seed)
}

/// Returns the row of one algorithm over some runs.
fn row(params: &Params, way: Way, runs: u32) -> Row {
    let scenario = Scenario::Election(params.clone());
    assert_eq!(scenario.check(), Ok(()), "{params:?}");
    let (strategies, clients) = (vec![Strategy::way(way)], vec![params.nodes]);
    let plan = Plan { scenario, strategies, clients, runs, seed: 1, threads: 2 };
    holdoff_sim::run(&plan, &|_, _| {}).remove(0)
}

fn of(nodes: u32, view: View, loss: f64, fault: Fault) -> Params {
    Params { nodes, view, loss, fault, ..Params::default() }
}

/// Returns the command that repeats this run.
fn replay(params: &Params, runs: u32) -> String {
    let Params { nodes, view, loss, fault, duration, .. } = params;
    let (view, fault) = (format!("{view:?}").to_lowercase(), format!("{fault:?}").to_lowercase());
    format!(
        "replay: holdoff sim election --policy holdoff --nodes {nodes} --set view={view} --set loss={loss} \
         --set fault={fault} --set duration={duration} --runs {runs} --seed 1"
    )
}

/// A few of the situations of `holdoff sim election --all`, with shorter runs.
#[test]
fn holdoff_holds_its_bars() {
    let sizes =
        [(3, View::Mesh), (5, View::Partial), (10, View::Mesh), (10, View::Partial), (50, View::Partial)];
    for (nodes, view) in sizes {
        for loss in [0.0, 0.05] {
            for fault in FAULTS {
                let duration = Micros::from_secs(if nodes > 10 { 150 } else { 300 });
                let params = Params { duration, ..of(nodes, view, loss, fault) };
                let missed = bars::missed(&params, &row(&params, Way::Holdoff, 3));
                assert!(missed.is_empty(), "{missed:?}\n{}", replay(&params, 3));
            }
        }
    }
}

#[test]
fn a_hundred_nodes_hold_the_bars_and_say_two_kilobytes_a_second_each() {
    for fault in [Fault::None, Fault::Crash] {
        let params = of(100, View::Partial, 0.01, fault);
        let missed = bars::missed(&params, &row(&params, Way::Holdoff, 2));
        assert!(missed.is_empty(), "{missed:?}\n{}", replay(&params, 2));
    }
}

/// Limits that no algorithm could miss would prove nothing.
#[test]
fn the_first_system_misses_the_bars() {
    let crashes = of(10, View::Mesh, 0.0, Fault::Crash);
    let missed = bars::missed(&crashes, &row(&crashes, Way::First, 3)).join("; ");
    assert!(missed.contains("two leaders at once") && missed.contains("ms to recover, p50"), "{missed}");
}

/// A crashed leader keeps the votes of all nodes, and leads again when it has restarted.
#[test]
fn the_first_system_does_not_notice_that_its_leader_is_dead() {
    for way in [Way::First, Way::Sticky, Way::Hysteresis, Way::SlowRounds] {
        for down_s in [5, 15] {
            let down_for = Micros::from_secs(down_s);
            let params = Params { down_for, ..of(10, View::Mesh, 0.0, Fault::Crash) };
            let recovery = &row(&params, way, 3).pooled["recovery"];
            assert!(recovery.count >= 12, "{way:?}: {}", recovery.count);
            let shortest_us = recovery.sorted_us.first().copied().unwrap();
            assert!(shortest_us >= down_for.0, "{way:?}, down for {down_s} s: {shortest_us}");
        }
    }
}

/// The other nodes do not wait for the crashed one.
#[test]
fn holdoff_finds_another_leader() {
    for seed in 0..5 {
        let params = Params { down_for: Micros::from_secs(15), ..of(10, View::Mesh, 0.01, Fault::Crash) };
        let outcome = run(&params, Way::Holdoff, seed);
        assert!(outcome.faults >= 4 && outcome.changes == outcome.faults, "seed {seed}: {outcome:?}");
        assert!(outcome.recoveries_us.iter().all(|us| *us < 6_000_000), "seed {seed}: {outcome:?}");
        assert_eq!((outcome.two_at_once, outcome.torn), (0, 0), "seed {seed}");
    }
}

/// The named node need not wait for the end of a random election timeout.
#[test]
fn who_is_named_leads_sooner_if_it_runs_at_once() {
    let first = |named_runs| {
        let params =
            Params { named_runs, duration: Micros::from_secs(5), ..of(3, View::Mesh, 0.0, Fault::None) };
        row(&params, Way::Holdoff, 50).time_ms
    };
    let (runs, waits) = (first(true), first(false));
    assert!(runs.p99 <= 1_500.0 && runs.mean < waits.mean, "{runs:?} {waits:?}");
}

/// A half without a majority of voters decides nothing, and later receives the entries that it missed.
#[test]
fn a_partition_leaves_one_history() {
    let mut changes = 0;
    for seed in 0..5 {
        let params =
            Params { duration: Micros::from_secs(300), ..of(10, View::Mesh, 0.05, Fault::Partition) };
        let outcome = run(&params, Way::Holdoff, seed);
        assert!(outcome.faults >= 4 && outcome.healings_us.len() as u64 == outcome.faults, "seed {seed}");
        assert_eq!((outcome.two_at_once, outcome.torn, outcome.unrecovered), (0, 0, 0), "seed {seed}");
        changes += outcome.changes;
    }
    assert!(changes > 0, "a leader was never on the smaller side");
}

#[test]
fn alone_a_node_leads_itself() {
    for way in Way::ALL {
        let params = Params { nodes: 1, fault: Fault::None, ..Params::default() };
        let outcome = run(&params, way, 1);
        assert!(outcome.first_us.is_some_and(|us| us <= 3_000_000), "{way:?}: {outcome:?}");
        assert_eq!((outcome.changes, outcome.two_at_once), (0, 0), "{way:?}");
    }
}

#[test]
fn what_is_no_way_to_find_a_leader_does_nothing() {
    let outcome = election::run(&Params::default(), &Strategy::named("full").unwrap(), 1);
    assert_eq!(outcome, Outcome::default());
    assert_eq!(run(&Params { nodes: 0, ..Params::default() }, Way::Holdoff, 1), Outcome::default());
    assert!(Scenario::named("election").unwrap().strategy("full").is_none());
    assert!(Scenario::named("row").unwrap().strategy("first").is_none());
}

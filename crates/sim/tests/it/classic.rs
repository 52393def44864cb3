//! The classic results are reproduced, with a margin for randomness.

use std::time::Duration;

use holdoff_policy::Contention;
use holdoff_sim::scenario::{Scenario, row};
use holdoff_sim::{Plan, ResultRow, Strategy, Summary, run};

const SEED: u64 = 20_240;

fn compare(params: row::Params, names: &[&str], clients: u32, runs: u32) -> Vec<ResultRow> {
    let strategies = names.iter().map(|name| Strategy::named(name).unwrap()).collect();
    let scenario = Scenario::Row(params);
    run(&Plan { scenario, strategies, clients: vec![clients], runs, seed: SEED, threads: 2 }, &|_, _| {})
}

/// Returns mean time and mean writes of the first row as shares of the second's.
fn shares(own: &ResultRow, others: &ResultRow) -> (f64, f64) {
    (own.time_ms.mean / others.time_ms.mean, own.calls.mean / others.calls.mean)
}

#[test]
fn no_backoff_is_quick_and_wasteful() {
    let rows = compare(row::Params::default(), &["none", "full"], 100, 100);
    let (none, full) = (&rows[0], &rows[1]);
    assert!((1_900.0..2_200.0).contains(&none.time_ms.mean), "seed {SEED}: {:?}", none.time_ms);
    assert!(none.calls.mean > 2_000.0, "seed {SEED}: {:?}", none.calls);
    let (_, writes) = shares(full, none);
    assert!((0.28..0.40).contains(&writes), "seed {SEED}: {writes}");
}

#[test]
fn exponential_without_jitter_is_slowest_by_far() {
    let names = ["exponential", "none", "full", "equal", "decorrelated"];
    let rows = compare(row::Params::default(), &names, 100, 40);
    for other in &rows[1..] {
        let (time, _) = shares(&rows[0], other);
        assert!(time > 8.0, "seed {SEED}: only {time} times the time of {}", other.policy);
    }
}

#[test]
fn a_known_number_of_contenders_wins_on_both_axes() {
    for clients in [10, 50, 100] {
        let rows = compare(row::Params::default(), &["contention", "full", "decorrelated"], clients, 400);
        for other in &rows[1..] {
            let (time, writes) = shares(&rows[0], other);
            assert!(
                time < 1.0 && writes < 1.0,
                "seed {SEED}, {clients}: {time} {writes} of {}",
                other.policy
            );
        }
        let (time, writes) = shares(&rows[0], &rows[1]);
        let wins_clearly = time <= 0.70 && writes <= 0.55;
        assert!(clients != 100 || wins_clearly, "seed {SEED}: {time} {writes}");
    }
}

#[test]
fn a_count_wrong_by_a_factor_of_two_still_wins_one_axis_and_loses_none() {
    for clients in [10, 50, 100] {
        let full = &compare(row::Params::default(), &["full"], clients, 400)[0];
        for contenders_error in [0.5, 2.0] {
            let params = row::Params { contenders_error, ..row::Params::default() };
            let (time, writes) = shares(&compare(params, &["contention"], clients, 400)[0], full);
            let is_good = time.min(writes) < 1.0 && time.max(writes) < 1.1;
            assert!(is_good, "seed {SEED}, {clients} clients, {contenders_error}: {time} {writes}");
        }
    }
}

#[test]
fn a_stale_count_is_almost_as_good() {
    let params = row::Params { contenders_stale: true, ..row::Params::default() };
    let stale = &compare(params, &["contention"], 100, 200)[0];
    let full = &compare(row::Params::default(), &["full"], 100, 200)[0];
    let (time, writes) = shares(stale, full);
    assert!(time < 1.0 && writes < 1.0, "seed {SEED}: {time} {writes}");
}

#[test]
fn an_unknown_count_is_full_jitter() {
    let params = row::Params { contenders_known: false, ..row::Params::default() };
    let rows = compare(params, &["contention", "full"], 100, 200);
    let (time, writes) = shares(&rows[0], &rows[1]);
    assert!((0.95..1.05).contains(&time) && (0.98..1.02).contains(&writes), "seed {SEED}: {time} {writes}");
}

#[test]
fn slow_growth_beats_doubling_without_a_count() {
    let params = row::Params { contenders_known: false, ..row::Params::default() };
    for clients in [10, 50, 100] {
        let rows = compare(params.clone(), &["contended", "full"], clients, 1000);
        let (contended, full) = (&rows[0], &rows[1]);
        let (time, writes) = shares(contended, full);
        assert!(time <= 1.0 && writes <= 1.0, "seed {SEED}, {clients} clients: {time} {writes}");
        let gave_up = contended.figures["gave_up"].mean;
        assert!(gave_up < f64::EPSILON, "seed {SEED}, {clients} clients: {gave_up} gave up");
        let is_clear =
            wins_clearly(contended.time_ms, full.time_ms) || wins_clearly(contended.calls, full.calls);
        assert!(clients == 10 || is_clear, "seed {SEED}, {clients} clients: {time} {writes}");
    }
}

/// Returns whether the figure is a tenth lower, and by more than three standard errors.
fn wins_clearly(own: Summary, other: Summary) -> bool {
    own.mean <= other.mean * 0.9 && other.mean - own.mean > 3.0 * own.se.hypot(other.se)
}

#[test]
fn every_client_is_served_once() {
    for name in ["none", "exponential", "full", "equal", "decorrelated", "contended", "contention"] {
        let strategy = Strategy::named(name).unwrap();
        let outcome = row::run(&row::Params::default(), &strategy, SEED);
        assert_eq!(outcome.gave_up, 0);
        assert_eq!(outcome.reads, outcome.writes);
        assert_eq!(outcome.delays.total(), outcome.writes - 100, "every write but the last of each waits");
        assert_eq!(outcome.calls_over_time.total(), outcome.reads + outcome.writes);
        assert_eq!(outcome.events, 4 * outcome.writes);
    }
}

#[test]
fn clients_that_exhaust_their_attempts_are_counted() {
    let strategy = Strategy::named("proposal").unwrap();
    let outcome = row::run(&row::Params::default(), &strategy, SEED);
    assert!(outcome.gave_up > 0);
    assert!(outcome.writes <= 100 * 7);
}

#[test]
fn the_cost_per_client_does_not_grow_with_the_number_of_clients() {
    let contention = Contention { slot: Duration::from_millis(15), limit: holdoff_policy::MAX_DELAY };
    let strategy = Strategy::contention(contention).unwrap();
    let outcome = row::run(&row::Params { clients: 20_000, ..row::Params::default() }, &strategy, SEED);
    assert!((60_000..100_000).contains(&outcome.writes), "{}", outcome.writes);
    assert!(outcome.peak_bytes <= 20_000 * 150, "{}", outcome.peak_bytes);
}

//! A hundred signals on three processes, and a fleet at a rate limit.

use holdoff_sim::kernel::Latency;
use holdoff_sim::scenario::{limit, storm};
use holdoff_sim::{Micros, Strategy};

fn named(name: &str) -> Strategy {
    Strategy::named(name).unwrap()
}

#[test]
fn jitter_lowers_the_peak() {
    for seed in 0..20 {
        let [fixed, lock] =
            ["fixed", "lock"].map(|name| storm::run(&storm::Params::default(), &named(name), seed));
        assert!(lock.peak_retries_per_ms * 2 < fixed.peak_retries_per_ms, "seed {seed}: {lock:?} {fixed:?}");
        assert!(lock.calls * 2 < fixed.calls, "seed {seed}");
    }
}

#[test]
fn with_the_probe_one_piece_of_work_serves_all() {
    for seed in 0..20 {
        let outcome = storm::run(&storm::Params::default(), &named("lock"), seed);
        assert_eq!((outcome.worked, outcome.found_done), (1, 99), "seed {seed}");
        assert_eq!((outcome.timed_out, outcome.exhausted), (0, 0), "seed {seed}");
        assert!(outcome.time_us < 3_000_000, "seed {seed}: {}", outcome.time_us);
    }
}

#[test]
fn without_the_probe_every_contender_holds_the_lock() {
    let brief = Micros::from_millis(20);
    for seed in 0..10 {
        let params = storm::Params { probe: false, hold: brief, ..storm::Params::default() };
        let patient = storm::run(&params, &named("full"), seed);
        assert_eq!(patient.worked, 100, "seed {seed}");
        assert!(patient.time_us >= 100 * brief.0, "seed {seed}");
        let limited = storm::run(&params, &named("lock"), seed);
        assert_eq!(limited.worked + limited.exhausted, 100, "seed {seed}");
        let long = storm::Params { hold: Micros::from_secs(1), ..params };
        let late = storm::run(&long, &named("fixed"), seed);
        assert!(late.timed_out > 0, "seed {seed}");
        assert_eq!(late.worked + late.timed_out, 100, "seed {seed}");
    }
}

#[test]
fn queueing_sends_one_contender_per_process() {
    for seed in 0..20 {
        let params = storm::Params { queue_in_process: true, ..storm::Params::default() };
        let outcome = storm::run(&params, &named("lock"), seed);
        assert_eq!((outcome.worked, outcome.found_done), (1, 99), "seed {seed}");
        assert!(outcome.peak_calls_per_ms <= 6, "seed {seed}: {}", outcome.peak_calls_per_ms);
        let open = storm::run(&storm::Params::default(), &named("lock"), seed);
        assert!(outcome.calls * 4 < open.calls, "seed {seed}: {} {}", outcome.calls, open.calls);
    }
}

#[test]
fn contenders_that_time_out_in_the_queue_are_counted() {
    let params = storm::Params {
        queue_in_process: true,
        probe: false,
        acquire_timeout: Micros::from_secs(5),
        ..storm::Params::default()
    };
    let outcome = storm::run(&params, &named("fixed"), 1);
    assert_eq!(outcome.worked + outcome.timed_out, 100);
    assert!(outcome.worked >= 4 && outcome.timed_out > 80, "{outcome:?}");
}

/// The store needs ten seconds for the first calls of all contenders: one contender is granted the lock in time, and
/// its result comes too late for all others.
#[test]
fn a_late_answer_is_a_timeout() {
    let slow = storm::Params {
        clients: 20,
        request_cost: Micros::from_millis(500),
        store_workers: 1,
        hold: Micros::from_millis(10),
        acquire_timeout: Micros::from_secs(5),
        ..storm::Params::default()
    };
    for seed in 0..10 {
        for (name, probe) in [("full", true), ("full", false), ("fixed", true), ("lock", false)] {
            let params = storm::Params { probe, ..slow.clone() };
            let outcome = storm::run(&params, &named(name), seed);
            let fates = (outcome.worked, outcome.found_done, outcome.timed_out, outcome.exhausted);
            assert_eq!(fates, (1, 0, 19, 0), "seed {seed}: {name}, probe {probe}");
        }
    }
}

/// A contender that is granted the lock too late releases it: the next contender gets it.
#[test]
fn a_lock_granted_after_the_timeout_is_released() {
    let params = storm::Params {
        clients: 2,
        arrive_within: Micros::from_secs(60),
        request_cost: Micros::from_millis(500),
        store_workers: 1,
        hop: Latency::Constant(Micros::from_millis(1)),
        acquire_timeout: Micros::from_millis(502),
        probe: false,
        ..storm::Params::default()
    };
    for seed in 0..10 {
        let outcome = storm::run(&params, &named("full"), seed);
        assert_eq!((outcome.worked, outcome.timed_out), (0, 2), "seed {seed}");
        assert_eq!(outcome.calls, 4, "seed {seed}: each acquires and releases");
        let patient = storm::Params { acquire_timeout: Micros::from_millis(503), ..params.clone() };
        assert!(storm::run(&patient, &named("full"), seed).worked >= 1, "seed {seed}");
    }
}

#[test]
fn an_exact_retry_after_wastes_calls_and_a_spread_one_does_not() {
    for seed in 0..10 {
        let [hinted, spread, deaf] = ["retry-after", "retry-after-spread", "full"]
            .map(|name| limit::run(&limit::Params::default(), &named(name), seed));
        assert!(spread.wasted * 4 < hinted.wasted, "seed {seed}: {} {}", spread.wasted, hinted.wasted);
        assert!(spread.wasted * 4 < deaf.wasted, "seed {seed}: {} {}", spread.wasted, deaf.wasted);
        assert!(spread.time_us < hinted.time_us, "seed {seed}: {} {}", spread.time_us, hinted.time_us);
        for outcome in [hinted, spread, deaf] {
            assert_eq!((outcome.calls - outcome.wasted, outcome.unserved), (500, 0), "seed {seed}");
            // The bucket admits no faster than it fills.
            assert!(outcome.time_us >= 4_700_000, "seed {seed}: {}", outcome.time_us);
        }
    }
}

#[test]
fn an_ignored_header_has_no_effect() {
    let silent = limit::Params { retry_after: Micros(0), ..limit::Params::default() };
    let ignored = limit::Params { honour: false, ..limit::Params::default() };
    let strategy = named("retry-after-spread");
    assert_eq!(limit::run(&silent, &strategy, 3), limit::run(&ignored, &strategy, 3));
}

#[test]
fn a_limit_that_never_admits_ends_at_the_horizon() {
    let closed = limit::Params {
        rate_per_sec: 0,
        burst: 0,
        horizon: Micros::from_secs(5),
        clients: 3,
        ..limit::Params::default()
    };
    let outcome = limit::run(&closed, &named("full"), 1);
    assert_eq!((outcome.unserved, outcome.time_us), (3, 5_000_000));
}

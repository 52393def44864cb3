//! The effect of retries on an outage, and their bounds.

use holdoff_sim::kernel::Latency;
use holdoff_sim::scenario::Scenario;
use holdoff_sim::scenario::outage::{BreakerRule, BudgetRule, Params, run};
use holdoff_sim::{Micros, Strategy};

const SEEDS: u64 = 12;

fn standard() -> Strategy {
    Strategy::named("standard").unwrap()
}

/// The outage begins at once and outlasts the run: every call fails.
fn all_fails(layers: u32, budget: Option<BudgetRule>) -> Params {
    let horizon = Micros::from_secs(60);
    Params { layers, budget, outage_start: Micros(0), outage_length: horizon, horizon, ..Params::default() }
}

#[test]
fn stacked_layers_multiply_the_calls() {
    let full = Strategy::named("full").unwrap();
    for (layers, power) in [(1, 4), (2, 16), (3, 64)] {
        let outcome = run(&all_fails(layers, None), &full, 1);
        assert_eq!(outcome.most_calls_per_request, power);
        // The last requests have not made all their calls when the run ends.
        let power = f64::from(power);
        assert!((power * 0.95..=power).contains(&outcome.amplification), "{}", outcome.amplification);
        assert_eq!(outcome.succeeded, 0);
    }
}

#[test]
fn a_budget_bounds_the_calls_of_stacked_layers() {
    let full = Strategy::named("full").unwrap();
    let outcome = run(&all_fails(3, Some(BudgetRule::default())), &full, 1);
    // No call succeeds, so no retry is earned: only the saved-up retries of the three layers are made.
    assert!(outcome.calls <= outcome.requests + 30, "{} calls", outcome.calls);
    assert!(outcome.amplification < 1.01, "{}", outcome.amplification);
    assert!(outcome.refused_by_budget > 0);
}

#[test]
fn without_budget_and_breaker_the_outage_is_metastable() {
    for seed in 0..SEEDS {
        let outcome = run(&Params::default(), &standard(), seed);
        assert!(!outcome.has_recovered, "seed {seed}");
        assert!(outcome.goodput < 0.2, "seed {seed}: {}", outcome.goodput);
    }
}

#[test]
fn without_an_outage_the_same_load_is_served() {
    for seed in 0..SEEDS {
        let calm = Params { outage_length: Micros(0), ..Params::default() };
        let outcome = run(&calm, &standard(), seed);
        assert!(outcome.has_recovered && outcome.goodput > 0.99, "seed {seed}: {}", outcome.goodput);
    }
}

#[test]
fn a_budget_lets_the_service_recover() {
    for seed in 0..SEEDS {
        let helped = Params { budget: Some(BudgetRule::default()), ..Params::default() };
        let outcome = run(&helped, &standard(), seed);
        assert!(outcome.has_recovered, "seed {seed}");
        assert!(outcome.amplification < 1.3, "seed {seed}: {}", outcome.amplification);
    }
}

#[test]
fn a_breaker_lets_one_layer_recover() {
    for seed in 0..SEEDS {
        let helped = Params { breaker: Some(BreakerRule::default()), ..Params::default() };
        let outcome = run(&helped, &standard(), seed);
        assert!(outcome.has_recovered, "seed {seed}");
        assert!(outcome.refused_by_breaker > 0, "seed {seed}");
    }
}

/// The outer layers retry the breaker's refusals, because they do not know the cause.
#[test]
fn a_breaker_alone_does_not_let_stacked_layers_recover() {
    for seed in 0..SEEDS {
        let breaker = Some(BreakerRule::default());
        let alone = Params { layers: 3, breaker, ..Params::default() };
        let outcome = run(&alone, &standard(), seed);
        assert!(!outcome.has_recovered, "seed {seed}: {}", outcome.recovery_us);
        let helped = Params { budget: Some(BudgetRule::default()), ..alone };
        assert!(run(&helped, &standard(), seed).has_recovered, "seed {seed}");
    }
}

#[test]
fn requests_arrive_at_the_configured_rate() {
    for (rate, requests) in [(300_000.0, 900_000.0), (700.0, 2_100.0)] {
        let (rate_per_client, seconds) = (rate, Micros::from_secs(3));
        let calls = Params { clients: 1, rate_per_client, attempts: 1, ..Params::default() };
        let params = Params { outage_start: Micros(0), outage_length: seconds, horizon: seconds, ..calls };
        let seen = f64::from(u32::try_from(run(&params, &standard(), 1).requests).unwrap());
        assert!((seen - requests).abs() <= 5.0 * requests.sqrt(), "{rate}: {seen}");
    }
}

/// The horizon is just late enough to see a recovery; some requests are still being served at the end.
#[test]
fn a_request_served_at_the_horizon_has_not_failed() {
    for seed in 0..SEEDS {
        for outage_ms in [9_001, 9_500, 10_000] {
            let slow = Params {
                service: Latency::Constant(Micros::from_millis(900)),
                workers: 500,
                ..Params::default()
            };
            let outage_length = Micros::from_millis(outage_ms);
            let horizon = Micros::from_secs(31);
            let params = Params { outage_length, horizon, ..slow };
            assert_eq!(Scenario::Outage(params.clone()).check(), Ok(()));
            let outcome = run(&params, &standard(), seed);
            assert!(outcome.has_recovered, "seed {seed}, {outage_ms} ms");
            assert!(outcome.recovery_us < 1_000_000, "seed {seed}: {}", outcome.recovery_us);
        }
    }
}

/// Whether requests arrive in the last seconds says nothing about the dependency.
#[test]
fn a_service_without_requests_recovers() {
    for seed in 0..SEEDS {
        let params = Params { clients: 1, rate_per_client: 0.002, ..Params::default() };
        assert!(run(&params, &standard(), seed).has_recovered, "seed {seed}");
    }
}

//! The limits of a retry budget over many requests.

use holdoff_policy::{Budget, BudgetOptions, Failure, Policy, SoFar};

struct Outcome {
    calls_per_request: f64,
    success: f64,
}

/// Runs many requests, each retried by the policy within the budget.
fn run(failure_rate: f64, options: BudgetOptions, requests: u32) -> Outcome {
    let (policy, budget) = (Policy::standard(), Budget::new(options));
    let mut rng = fastrand::Rng::with_seed(42);
    let (mut calls, mut succeeded) = (0_u32, 0_u32);
    for _ in 0..requests {
        for attempt in 1.. {
            calls += 1;
            if rng.f64() >= failure_rate {
                succeeded += 1;
                budget.refund();
                break;
            }
            let granted =
                policy.decide(&SoFar::after(attempt), &Failure::transient(), rng.u32(..)).delay().is_some();
            if !granted || !budget.withdraw() {
                break;
            }
        }
    }
    Outcome {
        calls_per_request: f64::from(calls) / f64::from(requests),
        success: f64::from(succeeded) / f64::from(requests),
    }
}

#[test]
fn calls_are_bounded_at_every_failure_rate() {
    for (ratio, burst) in [(0.2, 10), (0.1, 100), (0.5, 1), (0.0, 5)] {
        for tenths in 0..=10 {
            let requests = 100_000;
            let rate = f64::from(tenths) / 10.0;
            let bound = 1.0 + ratio + f64::from(burst) / f64::from(requests);
            let outcome = run(rate, BudgetOptions { ratio, burst }, requests);
            assert!(
                outcome.calls_per_request <= bound,
                "rate {rate}: {} > {bound}",
                outcome.calls_per_request
            );
        }
    }
}

#[test]
fn a_tenth_of_failures_is_still_retried_away() {
    let outcome = run(0.1, BudgetOptions::default(), 100_000);
    assert!(outcome.success >= 0.99, "{}", outcome.success);
}

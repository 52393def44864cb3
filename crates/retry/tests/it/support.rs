//! Operations whose logs and metrics the tests observe.

use std::cell::Cell;
use std::time::Duration;

use holdoff_policy::{BreakerOptions, Class, Failure, Growth, Jitter, Policy};
use holdoff_retry::{Retry, SharedBreaker};

fn quick(attempts: u32) -> Policy {
    let growth = Growth::constant(Duration::from_millis(1));
    Policy::builder(growth).jitter(Jitter::None).attempts(attempts).build().unwrap()
}

const SECRET: &str = "password=hunter2";

/// Fails twice with a secret in the error, the second time with a `Retry-After`, then succeeds.
pub(crate) fn succeed_at_the_third() {
    let (policy, calls) = (quick(5), Cell::new(0));
    let classify = |error: &(u32, &str)| {
        let failure = Failure::new(Class::RateLimited);
        if error.0 == 2 { failure.with_retry_after(Duration::from_millis(2)) } else { failure }
    };
    let call = || {
        calls.set(calls.get() + 1);
        if calls.get() < 3 { Err((calls.get(), SECRET)) } else { Ok(()) }
    };
    Retry::new(&policy)
        .operation("card.charge")
        .operation_id("id-7")
        .classify(classify)
        .run_blocking(call)
        .unwrap();
}

pub(crate) fn exhaust() {
    let policy = quick(2);
    let retry = Retry::new(&policy).operation("card.charge").classify(|_: &&str| Failure::transient());
    retry.run_blocking(|| Err::<(), _>(SECRET)).unwrap_err();
}

/// Opens a breaker by one failure, then receives its refusal.
pub(crate) fn meet_an_open_breaker() {
    let breaker = SharedBreaker::new(BreakerOptions { min_calls: 1, ..BreakerOptions::default() });
    let policy = quick(1);
    for _ in 0..2 {
        let retry = Retry::new(&policy).operation("card.charge").classify(|_: &&str| Failure::transient());
        retry.breaker(&breaker).run_blocking(|| Err::<(), _>(SECRET)).unwrap_err();
    }
}

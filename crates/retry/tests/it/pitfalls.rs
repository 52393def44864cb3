//! Known pitfalls of retry libraries: none of them is here.

use std::io::{Error, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use holdoff_policy::{Budget, BudgetOptions, Class, Failure, Growth, Jitter, Policy, SoFar};
use holdoff_retry::testing::{FakeTime, Script};
use holdoff_retry::{Retry, Retryable, StopReason, blocking};

const CAP: Duration = Duration::from_secs(2);

fn reset() -> Error {
    ErrorKind::ConnectionReset.into()
}

/// The waits of a call that fails until the policy gives up.
fn waits(policy: &Policy) -> Vec<Duration> {
    let time = FakeTime::new();
    let call = blocking::retry(policy, || Err::<(), _>(reset())).sleeper(time.clone());
    call.call().unwrap_err();
    time.waits()
}

#[test]
fn jitter_does_not_exceed_the_cap() {
    let jitters = [
        Jitter::None,
        Jitter::Full,
        Jitter::Equal,
        Jitter::Proportional(1.0),
        Jitter::Scaled { low: 0.5, high: 1.5 },
        Jitter::Additive(1.0),
        Jitter::Decorrelated,
    ];
    let exponential = Policy::builder(Growth::exponential(CAP / 8, 2.0)).cap(CAP).attempts(300);
    for jitter in jitters {
        let longest = waits(&exponential.clone().jitter(jitter).build().unwrap()).into_iter().max();
        assert!(longest <= Some(CAP), "{jitter:?}: {longest:?}");
    }
    // Two peers add the jitter after the cap.
    let backon = backon::ExponentialBuilder::default().with_jitter().with_max_delay(CAP).with_max_times(300);
    assert!(backon::BackoffBuilder::build(backon).any(|delay| delay > CAP));
    let tokio_retry = tokio_retry2::strategy::ExponentialBackoff::from_millis(2).max_delay(CAP);
    assert!(tokio_retry.map(tokio_retry2::strategy::jitter).take(300).any(|delay| delay > CAP));
}

#[test]
fn high_attempts_do_not_overflow() {
    for growth in [Growth::exponential(CAP, 1000.0), Growth::exponential(CAP, 2.0), Growth::constant(CAP)] {
        let policy = Policy::builder(growth).cap(CAP).attempts(10_000).build().unwrap();
        assert_eq!(waits(&policy).len(), 9_999);
        let unlimited = policy.to_builder().attempts(Policy::UNLIMITED).build().unwrap();
        for attempt in [1 << 31, u32::MAX - 1] {
            let decided = unlimited.decide(&SoFar::after(attempt), &Failure::transient(), u32::MAX);
            assert_eq!(decided.delay(), Some(CAP));
        }
    }
}

#[tokio::test]
async fn retry_after_is_obeyed_beyond_the_cap() {
    let policy = Policy::builder(Growth::constant(CAP)).cap(CAP).build().unwrap();
    let (script, time) = (Script::new([Err("slow down"), Ok(())]), FakeTime::new());
    let failure = Failure::new(Class::RateLimited).with_retry_after(CAP * 3);
    (|| script.call()).retry(&policy).classify(|_| failure).sleeper(time.clone()).await.unwrap();
    assert!(time.waits()[0] >= CAP * 3, "{:?}", time.waits());
}

#[tokio::test]
async fn zero_is_no_panic_and_no_endless_loop() {
    let zero = Policy::builder(Growth::constant(Duration::ZERO)).jitter(Jitter::Full).build().unwrap();
    assert!(blocking::retry(&zero, || Err::<(), _>(reset())).call().is_err());
    assert!(Policy::builder(Growth::constant(CAP)).attempts(0).build().is_err());
    let call = || std::future::ready(Err::<(), _>(reset()));
    let failed = Retry::new(&zero).deadline(Duration::ZERO).run(call).await.unwrap_err();
    assert_eq!((failed.attempts(), failed.error().is_none()), (0, true));
    let hang = || std::future::pending::<Result<(), Error>>();
    let timed_out = Retry::new(&zero).attempt_timeout(Duration::ZERO).run(hang).await.unwrap_err();
    assert_eq!((timed_out.attempts(), timed_out.timed_out()), (5, true));
    let empty = Budget::new(BudgetOptions { ratio: 0.0, burst: 0 });
    let stopped = Retry::new(&zero).budget(Arc::new(empty)).run(call).await.unwrap_err().stopped();
    assert_eq!(stopped, StopReason::Budget);
}

/// The last error survives a timeout of a later attempt, and `?` converts it.
#[tokio::test]
async fn the_last_error_is_not_lost() {
    async fn fetch(retry: &Retry<FakeTime>) -> Result<(), Error> {
        let mut attempts = 0;
        let call = || {
            attempts += 1;
            let hangs = attempts > 1;
            async move { if hangs { std::future::pending().await } else { Err(reset()) } }
        };
        Ok(retry.run(call).await?)
    }
    let retry = Retry::new(Policy::standard()).attempt_timeout(CAP).sleeper(FakeTime::new());
    assert_eq!(fetch(&retry).await.unwrap_err().kind(), ErrorKind::ConnectionReset);

    let hang = || std::future::pending::<Result<(), Error>>();
    let timed_out: Error = retry.run(hang).await.unwrap_err().into();
    assert_eq!(timed_out.kind(), ErrorKind::TimedOut, "without an error, the stop");
    let plain: Error = (|| async { Err::<(), _>(reset()) })
        .retry(&Policy::standard())
        .sleeper(FakeTime::new())
        .await
        .unwrap_err();
    assert_eq!(plain.kind(), ErrorKind::ConnectionReset);
}

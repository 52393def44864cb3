//! The blocking executor: the same retry loop on a plain thread.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use holdoff_policy::{Class, Failure, Growth, Jitter, Policy, Refusal};
use holdoff_retry::{Retry, Stopped, blocking};

fn quick(attempts: u32) -> Policy {
    let growth = Growth::constant(Duration::from_millis(1));
    Policy::builder(growth).jitter(Jitter::None).attempts(attempts).build().unwrap()
}

#[test]
fn it_tries_until_it_succeeds() {
    let calls = Cell::new(0);
    let call = || {
        calls.set(calls.get() + 1);
        if calls.get() < 3 {
            Err(std::io::ErrorKind::TimedOut.into())
        } else {
            Ok::<_, std::io::Error>(calls.get())
        }
    };
    assert_eq!(blocking::retry(&quick(5), call).unwrap(), 3);
}

#[test]
fn exhausted_carries_the_last_error_and_the_count() {
    let call = || Err::<(), _>(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
    let failed = blocking::retry(&quick(3), call).unwrap_err();
    assert_eq!((failed.stopped(), failed.attempts()), (Stopped::Refused(Refusal::Exhausted), 3));
    assert_eq!(failed.error().map(std::io::Error::kind), Some(std::io::ErrorKind::ConnectionReset));
    assert!(failed.elapsed() >= Duration::from_millis(2));
}

#[test]
fn a_delay_past_the_deadline_is_not_slept() {
    let policy =
        Policy::builder(Growth::constant(Duration::from_secs(3600))).jitter(Jitter::None).build().unwrap();
    let failed = Retry::new(&policy)
        .deadline(Duration::from_secs(1))
        .classify(|(): &()| Failure::transient())
        .run_blocking(|| Err::<(), _>(()))
        .unwrap_err();
    assert_eq!((failed.stopped(), failed.attempts()), (Stopped::Refused(Refusal::Deadline), 1));
}

#[test]
fn many_threads_refresh_once() {
    let (valid, refreshes) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let refresher = blocking::Refresher::new({
        let (valid, refreshes) = (Arc::clone(&valid), Arc::clone(&refreshes));
        move || {
            refreshes.fetch_add(1, Ordering::SeqCst);
            valid.store(1, Ordering::SeqCst);
            Ok(())
        }
    });
    let (policy, everybody) = (quick(5), Barrier::new(16));
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let first = Cell::new(true);
                let call = || {
                    let token = valid.load(Ordering::SeqCst);
                    // All threads read the expired token before the first refusal.
                    if first.replace(false) {
                        everybody.wait();
                    }
                    if token == 1 { Ok(()) } else { Err(()) }
                };
                let retry = Retry::new(&policy).classify(|(): &()| Failure::new(Class::Unauthorized));
                retry.refresh_blocking(&refresher).run_blocking(call).unwrap();
            });
        }
    });
    assert_eq!(refreshes.load(Ordering::SeqCst), 1);
}

#[test]
fn the_async_refresher_is_not_taken_for_a_blocking_one() {
    let refresher = holdoff_retry::Refresher::new(|| async { Ok(()) });
    let policy = quick(5);
    let retry = Retry::new(&policy).refresh(&refresher).classify(|()| Failure::new(Class::Unauthorized));
    let failed = retry.run_blocking(|| Err::<(), _>(())).unwrap_err();
    assert_eq!((failed.stopped(), failed.attempts()), (Stopped::Unauthorized, 1));
}

#[test]
fn a_cancelled_token_stops_between_attempts() {
    let (policy, token) = (quick(5), tokio_util::sync::CancellationToken::new());
    let retry = Retry::new(&policy).cancel(&token).classify(|()| Failure::transient());
    let call = || {
        token.cancel();
        Err::<(), _>(())
    };
    let failed = retry.run_blocking(call).unwrap_err();
    assert_eq!((failed.stopped(), failed.attempts()), (Stopped::Cancelled, 1));
}

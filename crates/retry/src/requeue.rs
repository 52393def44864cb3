//! Delays outside of a retried call: [`Requeue`] for controllers that must not sleep, [`Backoff`] for loops
//! that wait.

use std::time::Duration;

use fastrand::Rng;
use holdoff_policy::{Decision, Failure, Growth, Jitter, MAX_DELAY, Policy, SoFar, as_micros_u64};

use crate::{Sleeper, TokioSleeper};

/// Returns the delay before the next reconciliation of an object after this many consecutive failures; `None`
/// if the controller should not requeue it.
///
/// For reconcilers that return a delay to their queue instead of waiting. If the first failure is a refused
/// credential, the delay is zero: the next reconciliation uses a new credential. The function has no state.
/// For a policy with a deadline or decorrelated jitter, keep a [`Requeue`] for each object.
///
/// ```
/// use holdoff_policy::{Failure, Policy};
/// use holdoff_retry::requeue_after;
///
/// let policy = Policy::preset("lock").unwrap();
/// let again = requeue_after(&policy, 3, &Failure::transient()).unwrap();
/// assert!((360..=440).contains(&again.as_millis()));
/// assert_eq!(requeue_after(&policy, 10, &Failure::transient()), None, "the tenth attempt was the last");
/// ```
pub fn requeue_after(policy: &Policy, failures: u32, failure: &Failure) -> Option<Duration> {
    // Without state, the function assumes that the credentials were refreshed after the first failure.
    let so_far = SoFar { refreshed: failures > 1, ..SoFar::after(failures) };
    Requeue { so_far, rolls: Rng::new() }.after(policy, failure)
}

/// The consecutive failures of one object, for controllers that keep state for each object.
#[derive(Clone, Debug, Default)]
pub struct Requeue {
    so_far: SoFar,
    rolls: Rng,
}

impl Requeue {
    /// Creates the state of an object without failures.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records a failure; returns the delay before the next reconciliation, or `None` if the controller
    /// should not requeue.
    pub fn failed(&mut self, policy: &Policy, failure: &Failure) -> Option<Duration> {
        let after = self.after(policy, failure)?;
        self.so_far.attempt = self.so_far.attempt.next();
        self.so_far.elapsed += after;
        self.so_far.last_delay = after;
        Some(after)
    }

    /// Records a success: the next failure counts as the first.
    pub fn succeeded(&mut self) {
        self.so_far = SoFar::default();
    }

    fn after(&mut self, policy: &Policy, failure: &Failure) -> Option<Duration> {
        match policy.decide(&self.so_far, failure, self.rolls.u32(..)) {
            Decision::Retry { after } => Some(after),
            Decision::Refresh => {
                self.so_far.refreshed = true;
                Some(Duration::ZERO)
            }
            _ => None,
        }
    }
}

/// The backoff of a loop that repeats until its caller stops it: a watch, a subscription, a wait for another
/// process.
///
/// It never gives up: after the last attempt of a limited policy, each wait is the policy's cap.
///
/// ```
/// use holdoff_policy::Jitter;
/// use holdoff_retry::Backoff;
/// use std::time::Duration;
///
/// # async fn watch() -> Result<(), std::io::Error> { Ok(()) }
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let mut backoff =
///     Backoff::exponential(Duration::from_millis(100), Duration::from_secs(30), Jitter::Full);
/// while watch().await.is_err() {
///     backoff.wait().await;
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Backoff<S = TokioSleeper> {
    policy: Policy,
    failures: Requeue,
    sleeper: S,
}

impl Backoff {
    /// Creates the backoff of this policy.
    pub fn new(policy: Policy) -> Self {
        Self { policy, failures: Requeue::new(), sleeper: TokioSleeper }
    }

    /// Creates a backoff that doubles from `first` up to `cap`, without a limit on attempts.
    ///
    /// Both are rounded to whole microseconds and limited to 1 µs to [`MAX_DELAY`]; a cap below `first`
    /// becomes `first`.
    pub fn exponential(first: Duration, cap: Duration, jitter: Jitter) -> Self {
        let valid = |time: Duration| Duration::from_micros(as_micros_u64(time.min(MAX_DELAY)).max(1));
        let (first, cap) = (valid(first), valid(cap).max(valid(first)));
        let builder = Policy::builder(Growth::exponential(first, 2.0));
        let built = builder.cap(cap).jitter(jitter).attempts(Policy::UNLIMITED).build();
        // Only an invalid share of `jitter` fails; the standard policy then applies.
        Self::new(built.unwrap_or_else(|_| Policy::standard()))
    }
}

impl<S> Backoff<S> {
    /// Sets the timer, for a runtime other than tokio.
    pub fn sleeper<Z: Sleeper>(self, sleeper: Z) -> Backoff<Z> {
        Backoff { policy: self.policy, failures: self.failures, sleeper }
    }

    /// Resets the backoff after progress: the next wait is the first.
    pub fn reset(&mut self) {
        self.failures.succeeded();
    }

    /// Counts a failure and waits before the next attempt.
    ///
    /// Cancel-safe: a dropped wait counts as a failure, and nothing else happens.
    pub async fn wait(&mut self)
    where
        S: Sleeper,
    {
        let delay = self.failures.failed(&self.policy, &Failure::transient());
        self.sleeper.sleep(delay.unwrap_or(self.policy.cap())).await;
    }
}

#[cfg(all(test, feature = "tokio"))]
mod tests {
    use tokio::time::Instant;

    use super::*;

    const FIRST: Duration = Duration::from_millis(100);
    const CAP: Duration = Duration::from_secs(30);

    #[test]
    fn an_exponential_backoff_accepts_every_pair_of_durations() {
        let odd = Duration::from_nanos(1_234_567);
        for first in [Duration::ZERO, odd, FIRST, Duration::MAX] {
            for cap in [Duration::ZERO, odd, CAP, Duration::MAX] {
                let policy = Backoff::exponential(first, cap, Jitter::Equal).policy;
                assert_eq!(policy.attempts(), Policy::UNLIMITED, "{first:?} {cap:?}");
                assert!(policy.cap() <= cap.max(first).max(Duration::from_micros(1)), "{first:?} {cap:?}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn waits_grow_until_progress_resets_them() {
        let mut backoff = Backoff::exponential(FIRST, CAP, Jitter::Full);
        let first = FIRST + Duration::from_millis(1);
        let mut longest = Duration::ZERO;
        for _ in 0..50 {
            let begun = Instant::now();
            backoff.wait().await;
            longest = longest.max(begun.elapsed());
        }
        assert!(longest > first && longest <= CAP + Duration::from_millis(1), "{longest:?}");
        backoff.reset();
        let begun = Instant::now();
        backoff.wait().await;
        assert!(begun.elapsed() <= first, "{:?}", begun.elapsed());
    }
}

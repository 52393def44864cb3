//! Requeue delays for controllers that must not sleep.

use std::time::Duration;

use fastrand::Rng;
use holdoff_policy::{Decision, Failure, Policy, SoFar};

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
/// assert_eq!(requeue_after(&policy, 10, &Failure::transient()), None, "the tenth try was the last");
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

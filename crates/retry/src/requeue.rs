//! When to come back, for controllers that must not sleep.

use std::time::Duration;

use fastrand::Rng;
use holdoff_policy::{Decision, Failure, Policy, SoFar};

/// When to look at an object again that has failed so often in a row; `None` if not by itself.
///
/// For reconcilers that return a time to their queue instead of waiting. A credential that is refused at the
/// first failure means "at once": the next round uses a new one. It remembers nothing: a policy with a
/// deadline or decorrelated jitter wants a [`Requeue`] for each object.
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
    // Without a memory of its own it takes credentials to have been refreshed after the first failure.
    let so_far = SoFar { refreshed: failures > 1, ..SoFar::after(failures) };
    Requeue { so_far, rolls: Rng::new() }.after(policy, failure)
}

/// The failures of one object in a row, for controllers that keep some state for each.
#[derive(Clone, Debug, Default)]
pub struct Requeue {
    so_far: SoFar,
    rolls: Rng,
}

impl Requeue {
    /// No failure yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts a failure; says when to look again, or `None` if not by itself.
    pub fn failed(&mut self, policy: &Policy, failure: &Failure) -> Option<Duration> {
        let after = self.after(policy, failure)?;
        self.so_far.attempt = self.so_far.attempt.next();
        self.so_far.elapsed += after;
        self.so_far.last_delay = after;
        Some(after)
    }

    /// Counts a success: the next failure is the first again.
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

//! The delays of one failing operation.

use core::time::Duration;

use crate::{Failure, Policy, SoFar};

/// The delays of one operation whose every attempt fails at once, each drawn with a fresh roll.
///
/// Created by [`Policy::schedule`]. It calls [`decide`](crate::Compiled::decide), so the deadline applies
/// too.
#[derive(Clone, Debug)]
pub struct Schedule<'a, R> {
    policy: &'a Policy,
    so_far: SoFar,
    roll: R,
}

impl Policy {
    /// Returns the delays of one operation that keeps failing; `roll` draws the random numbers.
    ///
    /// ```
    /// use holdoff_policy::Policy;
    ///
    /// let policy = Policy::preset("proposal").unwrap();
    /// let shortest: Vec<_> = policy.schedule(|| 0).map(|delay| delay.as_millis()).collect();
    /// assert_eq!(shortest, [10, 20, 40, 80, 160, 320]);
    /// ```
    pub fn schedule<R: FnMut() -> u32>(&self, roll: R) -> Schedule<'_, R> {
        Schedule { policy: self, so_far: SoFar::default(), roll }
    }
}

impl<R: FnMut() -> u32> Iterator for Schedule<'_, R> {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let delay = self.policy.decide(&self.so_far, &Failure::transient(), (self.roll)()).delay()?;
        self.so_far.attempt = self.so_far.attempt.next();
        self.so_far.elapsed = self.so_far.elapsed.saturating_add(delay);
        self.so_far.last_delay = delay;
        Some(delay)
    }
}

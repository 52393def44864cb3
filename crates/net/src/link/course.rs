//! Pure reconnect state: the history from which the policy decides when a link connects again.

use std::time::Duration;

use holdoff_policy::{Attempt, Decision, Failure, Policy, SoFar};

/// A connection that lasted at least this long resets the history of failures.
const STEADY: Duration = Duration::from_secs(5);

/// The shortest pause before a link whose policy has given up connects again on use.
const LEAST_REST: Duration = Duration::from_secs(1);

/// The failed attempts since the last steady connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Course {
    tries: u32,
    last_delay: Duration,
}

/// The decision about the next attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pause {
    /// The time before the next attempt.
    pub(super) wait: Duration,
    /// Whether the next attempt waits until the link is used, because the policy has given up.
    pub(super) on_demand: bool,
}

impl Course {
    /// Records the end of a connection that lasted `lived`.
    pub(super) fn held(&mut self, lived: Duration) {
        if lived >= STEADY {
            *self = Self::default();
        }
    }

    /// Records a failed attempt or a lost connection, `elapsed` after the first of the series. `floor` is the shortest
    /// wait.
    pub(super) fn failed(
        &mut self,
        policy: &Policy,
        elapsed: Duration,
        floor: Option<Duration>,
        roll: u32,
    ) -> Pause {
        self.tries = self.tries.saturating_add(1);
        let failure =
            floor.map_or(Failure::transient(), |floor| Failure::transient().with_retry_after(floor));
        let so_far = SoFar {
            attempt: Attempt::new(self.tries),
            elapsed,
            last_delay: self.last_delay,
            ..SoFar::default()
        };
        if let Decision::Retry { after } = policy.decide(&so_far, &failure, roll) {
            self.last_delay = after;
            return Pause { wait: after, on_demand: false };
        }
        let wait = floor.unwrap_or(self.last_delay).max(LEAST_REST);
        *self = Self::default();
        Pause { wait, on_demand: true }
    }
}

#[cfg(test)]
mod tests {
    use holdoff_policy::{Growth, Jitter};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn policy(attempts: u32) -> Policy {
        Policy::builder(Growth::exponential(SECOND, 2.0))
            .jitter(Jitter::None)
            .cap(SECOND * 8)
            .attempts(attempts)
            .build()
            .unwrap()
    }

    fn waits(course: &mut Course, policy: &Policy, times: usize) -> Vec<u64> {
        (0..times).map(|_| course.failed(policy, SECOND, None, 0).wait.as_secs()).collect()
    }

    #[test]
    fn a_connection_that_falls_at_once_does_not_begin_anew() {
        let (mut course, policy) = (Course::default(), policy(Policy::UNLIMITED));
        assert_eq!(waits(&mut course, &policy, 3), [1, 2, 4]);
        course.held(SECOND);
        assert_eq!(waits(&mut course, &policy, 2), [8, 8]);
        course.held(SECOND * 5);
        assert_eq!(waits(&mut course, &policy, 2), [1, 2]);
    }

    #[test]
    fn a_policy_that_gives_up_leaves_the_link_at_rest_and_then_begins_anew() {
        let (mut course, policy) = (Course::default(), policy(3));
        assert_eq!(waits(&mut course, &policy, 2), [1, 2]);
        let rest = course.failed(&policy, SECOND, None, 0);
        assert_eq!(rest, Pause { wait: SECOND * 2, on_demand: true });
        assert_eq!(waits(&mut course, &policy, 1), [1]);
    }

    #[test]
    fn what_will_not_pass_by_itself_is_tried_slowly() {
        let (mut course, policy) = (Course::default(), policy(Policy::UNLIMITED));
        let pause = course.failed(&policy, SECOND, Some(SECOND * 30), 0);
        assert_eq!(pause, Pause { wait: SECOND * 30, on_demand: false });
    }
}

//! The validity of a held lock, as a pure core: when to renew, and until when the lock is certainly held.
//!
//! ```text
//!   sent      a third        the margin before the lease ends       the lease ends at the store, or later
//!    │──────────│──────────────────────│──────────────────────────────│
//!    valid      renew                  lost                            others may be granted it
//! ```
//!
//! The store measures the lease from the arrival of the request, which is never before it was sent. A holder that
//! counts from `sent`, and stops a margin earlier, stops before the store can grant the lock again.

use std::time::Duration;

use holdoff_policy::{Attempt, Decision, Failure, Policy, SoFar};

/// The minimum margin: the error of timers and clock steps.
const LEAST_MARGIN: Duration = Duration::from_millis(20);

/// Returns until when a lease that was requested at `sent` is certainly held. A twentieth of the lease stays unused,
/// which is far more than two clocks can drift apart in that time.
pub(crate) fn valid_until(sent: Duration, lease: Duration) -> Duration {
    let margin = (lease / 20).max(LEAST_MARGIN);
    sent.saturating_add(lease.saturating_sub(margin))
}

/// The validity of a held lock.
#[derive(Clone, Debug)]
pub(crate) struct Tenure {
    lease: Duration,
    valid_until: Duration,
    renew_at: Duration,
    /// The number of consecutive failed renewals.
    failed: u32,
    last_delay: Duration,
    is_lost: bool,
}

/// The next action of a holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keep {
    /// Renew the lease, with the response before this time.
    Renew { by: Duration },
    /// Wait until this time.
    Wait { until: Duration },
    /// Stop: another client may hold the lock.
    Lost,
}

impl Tenure {
    /// Returns the validity of a lock that was granted by a request sent at `sent`.
    pub(crate) fn new(sent: Duration, lease: Duration) -> Self {
        Self {
            lease,
            valid_until: valid_until(sent, lease),
            renew_at: sent.saturating_add(lease / 3),
            failed: 0,
            last_delay: Duration::ZERO,
            is_lost: false,
        }
    }

    pub(crate) fn is_valid(&self, now: Duration) -> bool {
        !self.is_lost && now < self.valid_until
    }

    pub(crate) fn valid_for(&self, now: Duration) -> Duration {
        if self.is_lost { Duration::ZERO } else { self.valid_until.saturating_sub(now) }
    }

    /// Returns the next action.
    pub(crate) fn next(&mut self, now: Duration) -> Keep {
        // A loss is final: a renewal that succeeds later does not restore the lock.
        self.is_lost |= now >= self.valid_until;
        if self.is_lost {
            return Keep::Lost;
        }
        if now < self.renew_at {
            return Keep::Wait { until: self.renew_at.min(self.valid_until) };
        }
        // One call must not use up the time that is left for further attempts.
        let by = now.saturating_add(self.lease / 3);
        Keep::Renew { by: by.min(self.valid_until) }
    }

    /// Records a successful renewal that was sent at `sent`.
    pub(crate) fn renewed(&mut self, sent: Duration) {
        self.valid_until = self.valid_until.max(valid_until(sent, self.lease));
        self.renew_at = sent.saturating_add(self.lease / 3);
        self.failed = 0;
        self.last_delay = Duration::ZERO;
    }

    /// Records the store's response that another client holds the lock, or that it is free.
    pub(crate) fn refused(&mut self) {
        self.is_lost = true;
    }

    /// Records a failed renewal, and schedules the next attempt by the policy.
    pub(crate) fn failed(&mut self, policy: &Policy, now: Duration, roll: u32) {
        self.failed = self.failed.saturating_add(1);
        // A quarter of the remaining time, so that further attempts always fit.
        let left = self.valid_until.saturating_sub(now) / 4;
        let so_far = SoFar {
            attempt: Attempt::new(self.failed.min(policy.attempts().saturating_sub(1))),
            last_delay: self.last_delay,
            deadline: Some(left),
            ..SoFar::default()
        };
        self.last_delay = match policy.decide(&so_far, &Failure::transient(), roll) {
            Decision::Retry { after } => after,
            _ => left / 2 + Duration::from_nanos((nanos(left / 2) * u64::from(roll)) >> 32),
        };
        self.renew_at = now.saturating_add(self.last_delay.max(Duration::from_millis(1)));
    }
}

/// Returns the nanoseconds, at most a second, so that they can be multiplied.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).min(1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn policy() -> Policy {
        Policy::preset("lock-aggressive").unwrap()
    }

    #[test]
    fn it_renews_at_a_third_and_is_lost_before_the_lease_ends() {
        let mut tenure = Tenure::new(SECOND, SECOND * 30);
        assert_eq!(tenure.next(SECOND * 2), Keep::Wait { until: SECOND * 11 });
        assert_eq!(tenure.next(SECOND * 11), Keep::Renew { by: SECOND * 21 });
        assert!(tenure.is_valid(SECOND * 29) && !tenure.is_valid(SECOND * 30));
        assert_eq!(tenure.valid_for(SECOND * 29), SECOND / 2);
        tenure.renewed(SECOND * 11);
        assert_eq!(tenure.next(SECOND * 12), Keep::Wait { until: SECOND * 21 });
        assert_eq!(tenure.next(SECOND * 40), Keep::Lost);
    }

    #[test]
    fn what_is_lost_stays_lost() {
        let mut tenure = Tenure::new(Duration::ZERO, SECOND);
        assert_eq!(tenure.next(SECOND), Keep::Lost);
        tenure.renewed(SECOND);
        assert!(!tenure.is_valid(SECOND), "somebody was told already");
        let mut tenure = Tenure::new(Duration::ZERO, SECOND);
        tenure.refused();
        assert_eq!(
            (tenure.next(Duration::ZERO), tenure.valid_for(Duration::ZERO)),
            (Keep::Lost, Duration::ZERO)
        );
    }

    #[test]
    fn failed_renewals_are_tried_again_often_but_not_without_end() {
        for lease in [SECOND / 10, SECOND, SECOND * 30, SECOND * 3600] {
            let (policy, mut tenure) = (policy(), Tenure::new(Duration::ZERO, lease));
            let (mut now, mut tries) = (Duration::ZERO, 0_u32);
            loop {
                match tenure.next(now) {
                    Keep::Wait { until } => {
                        assert!(until > now);
                        now = until;
                    }
                    Keep::Renew { by } => {
                        assert!(by > now);
                        tries += 1;
                        tenure.failed(&policy, now, tries.wrapping_mul(0x9E37_79B1));
                    }
                    Keep::Lost => break,
                }
            }
            let most = 100 + u32::try_from(lease.as_millis() / 100).unwrap();
            assert!((4..most).contains(&tries), "{tries} tries in {lease:?}");
            assert!(now >= valid_until(Duration::ZERO, lease) && now < lease, "{now:?} of {lease:?}");
        }
    }
}

//! The validity of a held lock, as a pure core: when to renew, and until when the lock is certainly held.
//!
//! ```text
//!   sent      a third        the margin before the lease ends       the lease expires at the store, or later
//!    │──────────│──────────────────────│──────────────────────────────│
//!    valid      renew                  lost                            the store may grant the lock again
//! ```
//!
//! The store measures the lease from the arrival of the request, which is never before it was sent. A holder that
//! counts from `sent`, and stops a margin earlier, stops before the store can grant the lock again.

use std::time::Duration;

use holdoff_policy::{Attempt, Decision, Failure, Policy, SoFar};

/// The minimum margin: the error of timers and clock steps.
const MIN_MARGIN: Duration = Duration::from_millis(20);

/// Returns until when a lease that was requested at `sent` is certainly held. A twentieth of the lease stays unused,
/// which is far more than two clocks can drift apart in that time.
pub(crate) fn valid_until(sent: Duration, lease: Duration) -> Duration {
    let margin = (lease / 20).max(MIN_MARGIN);
    sent.saturating_add(lease.saturating_sub(margin))
}

/// The validity of a held lock.
#[derive(Clone, Debug)]
pub(crate) struct Validity {
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
pub(crate) enum HolderAction {
    /// Renew the lease, with the response before this time.
    Renew { by: Duration },
    /// Wait until this time.
    Wait { until: Duration },
    /// Stop: another client may hold the lock.
    Lost,
}

impl Validity {
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
    pub(crate) fn next(&mut self, now: Duration) -> HolderAction {
        // A loss is final: a renewal that succeeds later does not restore the lock.
        self.is_lost |= now >= self.valid_until;
        if self.is_lost {
            return HolderAction::Lost;
        }
        if now < self.renew_at {
            return HolderAction::Wait { until: self.renew_at.min(self.valid_until) };
        }
        // One call must not use up the time that is left for further attempts.
        let by = now.saturating_add(self.lease / 3);
        HolderAction::Renew { by: by.min(self.valid_until) }
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
    use holdoff_policy::{Growth, Jitter, PolicyBuilder};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn policy() -> Policy {
        Policy::preset("lock-aggressive").unwrap()
    }

    #[test]
    fn a_lock_is_renewed_after_a_third_of_its_lease_and_lost_before_the_lease_expires() {
        let mut validity = Validity::new(SECOND, SECOND * 30);
        assert_eq!(validity.next(SECOND * 2), HolderAction::Wait { until: SECOND * 11 });
        assert_eq!(validity.next(SECOND * 11), HolderAction::Renew { by: SECOND * 21 });
        assert!(validity.is_valid(SECOND * 29) && !validity.is_valid(SECOND * 30));
        assert!(!validity.is_valid(SECOND * 59 / 2), "the margin is a twentieth of the lease");
        assert_eq!(validity.valid_for(SECOND * 29), SECOND / 2);
        validity.renewed(SECOND * 11);
        assert_eq!(validity.next(SECOND * 12), HolderAction::Wait { until: SECOND * 21 });
        assert_eq!(validity.next(SECOND * 40), HolderAction::Lost);
    }

    #[test]
    fn a_loss_is_final() {
        let mut validity = Validity::new(Duration::ZERO, SECOND);
        assert_eq!(validity.next(SECOND), HolderAction::Lost);
        validity.renewed(SECOND);
        assert!(!validity.is_valid(SECOND), "the loss was reported");
        let mut validity = Validity::new(Duration::ZERO, SECOND);
        validity.refused();
        assert_eq!(
            (validity.next(Duration::ZERO), validity.valid_for(Duration::ZERO)),
            (HolderAction::Lost, Duration::ZERO)
        );
    }

    #[test]
    fn a_failed_renewal_waits_by_the_policy_or_a_part_of_the_remaining_time() {
        let renewals = |policy: PolicyBuilder, failures: &[Duration]| {
            let (policy, mut validity) = (
                policy.attempts(9).cap(SECOND * 10).build().unwrap(),
                Validity::new(Duration::ZERO, SECOND * 30),
            );
            for now in failures {
                validity.failed(&policy, *now, 1 << 31);
            }
            validity.next(*failures.last().unwrap())
        };
        let doubling = || Policy::builder(Growth::exponential(SECOND, 2.0)).jitter(Jitter::None);
        let wait = |millis| HolderAction::Wait { until: Duration::from_millis(millis) };
        assert_eq!(renewals(doubling(), &[Duration::ZERO]), wait(1_000));
        assert_eq!(renewals(doubling(), &[Duration::ZERO; 2]), wait(2_000), "the attempts are counted");
        let last = SECOND * 53 / 2;
        assert_eq!(
            renewals(doubling(), &[last]),
            wait(26_875),
            "between an eighth and a quarter of two seconds"
        );
        let decorrelated = || Policy::builder(Growth::constant(SECOND)).jitter(Jitter::Decorrelated);
        assert_eq!(renewals(decorrelated(), &[Duration::ZERO]), wait(2_000));
        assert_eq!(renewals(decorrelated(), &[Duration::ZERO; 2]), wait(3_500), "from the last delay");
    }

    #[test]
    fn failed_renewals_are_retried_a_bounded_number_of_times() {
        for lease in [SECOND / 10, SECOND, SECOND * 30, SECOND * 3600] {
            let (policy, mut validity) = (policy(), Validity::new(Duration::ZERO, lease));
            let (mut now, mut attempts) = (Duration::ZERO, 0_u32);
            loop {
                match validity.next(now) {
                    HolderAction::Wait { until } => {
                        assert!(until > now);
                        now = until;
                    }
                    HolderAction::Renew { by } => {
                        assert!(by > now);
                        attempts += 1;
                        validity.failed(&policy, now, attempts.wrapping_mul(0x9E37_79B1));
                    }
                    HolderAction::Lost => break,
                }
            }
            let most = 100 + u32::try_from(lease.as_millis() / 100).unwrap();
            assert!((4..most).contains(&attempts), "{attempts} attempts in {lease:?}");
            assert!(now >= valid_until(Duration::ZERO, lease) && now < lease, "{now:?} of {lease:?}");
        }
    }
}

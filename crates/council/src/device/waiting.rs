//! How long to wait: a policy says so, and nothing else.

use std::time::Duration;

use holdoff_policy::{Failure, Policy, SoFar};

use super::{Device, Out};
use crate::machine::Machine;

impl<W> Out<'_, W> {
    /// When to do something again that was done so many times in vain, and not before this time has passed.
    pub(super) fn later(&mut self, policy: &Policy, times: u32, floor: Duration) -> u64 {
        let failure = Failure::transient().with_retry_after(floor);
        let decision = policy.decide(&SoFar::after(times), &failure, (self.roll)());
        // A policy that gives up is too impatient: what ends this is that it is done.
        let after = decision.delay().unwrap_or(floor).max(LEAST);
        self.now_us.saturating_add(u64::try_from(after.as_micros()).unwrap_or(u64::MAX))
    }
}

/// A policy that does not wait at all would keep the device busy with itself.
const LEAST: Duration = Duration::from_millis(1);

impl<M: Machine> Device<M> {
    /// When to ask again what was asked so many times: not before an answer can be expected.
    pub(super) fn ask_again_at(&self, times: u32, out: &mut Out<'_, M::Wish>) -> u64 {
        let patience = Duration::from_micros(self.round_trip.patience_us());
        out.later(&self.options.asking, times, patience)
    }
}

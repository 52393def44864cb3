//! The waiting times of a device. Policies determine all of them.

use std::time::Duration;

use holdoff_policy::{Failure, Policy, SoFar};

use super::{Device, Out};
use crate::machine::Machine;

impl<W> Out<'_, W> {
    /// Returns the time for the next attempt after this many unsuccessful attempts. It is at least `floor` from
    /// now.
    pub(super) fn later(&mut self, policy: &Policy, times: u32, floor: Duration) -> u64 {
        let failure = Failure::transient().with_retry_after(floor);
        let decision = policy.decide(&SoFar::after(times), &failure, (self.roll)());
        // A decision to give up does not apply here: only success ends this.
        let after = decision.delay().unwrap_or(floor).max(LEAST);
        self.now_us.saturating_add(u64::try_from(after.as_micros()).unwrap_or(u64::MAX))
    }
}

/// The minimum waiting time. A policy without any delay would make the device spin.
const LEAST: Duration = Duration::from_millis(1);

impl<M: Machine> Device<M> {
    /// Returns the time to repeat a request that was sent this many times. It is not before an answer can be
    /// expected.
    pub(super) fn ask_again_at(&self, times: u32, out: &mut Out<'_, M::Wish>) -> u64 {
        let patience = Duration::from_micros(self.round_trip.patience_us());
        out.later(&self.options.asking, times, patience)
    }
}

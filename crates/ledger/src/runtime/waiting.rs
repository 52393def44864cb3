//! Waiting between two tries, as a policy says: the one way this is done here.

use std::time::Duration;

use fastrand::Rng;
use holdoff_policy::{Failure, Growth, Jitter, Policy, SoFar};

use super::clock;

/// Tries that do not end by themselves: whoever waits has a deadline, or asks for as long as it runs.
pub(super) struct Waiting {
    policy: Policy,
    tries: u32,
    rng: Rng,
}

impl Waiting {
    /// Waits this long at first, then ever longer, up to a most.
    pub(super) fn between(first: Duration, most: Duration) -> Self {
        Self { policy: patient(first, most), tries: 0, rng: Rng::new() }
    }

    /// Waits until the next try.
    pub(super) async fn wait(&mut self) {
        self.tries = self.tries.saturating_add(1);
        let decision = self.policy.decide(&SoFar::after(self.tries), &Failure::transient(), self.rng.u32(..));
        clock::sleep(decision.delay().unwrap_or(Duration::from_secs(1))).await;
    }
}

/// Spread, and without end.
pub(super) fn patient(first: Duration, most: Duration) -> Policy {
    let growth = Growth::exponential(first, 2.0);
    let builder = Policy::builder(growth).jitter(Jitter::Equal).cap(most).attempts(Policy::UNLIMITED);
    builder.build().unwrap_or_else(|_| Policy::standard())
}

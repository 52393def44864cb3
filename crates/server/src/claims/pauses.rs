//! How long to wait for what somebody else is just doing, before it is looked at again.

use std::time::Duration;

use holdoff_policy::{Failure, Growth, Jitter, Policy};
use holdoff_retry::Requeue;

/// The first wait, in the middle.
const FIRST: Duration = Duration::from_millis(20);

/// Waits that grow, spread so that daemons which wait for the same do not come together. Whoever waits has a deadline of its own.
#[derive(Debug)]
pub(super) struct Pauses {
    policy: Policy,
    failures: Requeue,
}

impl Pauses {
    /// None is longer than this.
    pub(super) fn up_to(most: Duration) -> Self {
        Self { policy: policy(most), failures: Requeue::new() }
    }

    /// It went well: the next wait is the first again.
    pub(super) fn end(&mut self) {
        self.failures.succeeded();
    }

    /// Waits until it is worth looking again.
    pub(super) async fn wait(&mut self) {
        let pause = self.failures.failed(&self.policy, &Failure::transient());
        tokio::time::sleep(pause.unwrap_or(self.policy.cap())).await;
    }
}

fn policy(most: Duration) -> Policy {
    let growth = Growth::exponential(FIRST, 2.0);
    let builder =
        Policy::builder(growth).jitter(Jitter::Equal).cap(most.max(FIRST)).attempts(Policy::UNLIMITED);
    // These numbers are valid, which a test sees to.
    builder.build().unwrap_or_else(|_| Policy::standard())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_is_valid() {
        for most in [Duration::ZERO, Duration::from_millis(200), Duration::from_secs(30)] {
            assert_eq!((policy(most).cap(), policy(most).attempts()), (most.max(FIRST), Policy::UNLIMITED));
        }
    }
}

//! Backoff while another daemon makes progress on the same claim.

use std::time::Duration;

use holdoff_policy::{Failure, Growth, Jitter, Policy};
use holdoff_retry::Requeue;

/// The first wait, before jitter.
const FIRST: Duration = Duration::from_millis(20);

/// Growing random waits, so that daemons that wait for the same claim do not retry together. The caller has a deadline
/// of its own.
#[derive(Debug)]
pub(super) struct Pauses {
    policy: Policy,
    failures: Requeue,
}

impl Pauses {
    /// Creates waits of at most `most`.
    pub(super) fn up_to(most: Duration) -> Self {
        Self { policy: policy(most), failures: Requeue::new() }
    }

    /// Resets the backoff after a success.
    pub(super) fn end(&mut self) {
        self.failures.succeeded();
    }

    /// Waits before the next attempt.
    pub(super) async fn wait(&mut self) {
        let pause = self.failures.failed(&self.policy, &Failure::transient());
        tokio::time::sleep(pause.unwrap_or(self.policy.cap())).await;
    }
}

fn policy(most: Duration) -> Policy {
    let growth = Growth::exponential(FIRST, 2.0);
    let builder =
        Policy::builder(growth).jitter(Jitter::Equal).cap(most.max(FIRST)).attempts(Policy::UNLIMITED);
    // A test checks that these values are valid.
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

//! The backoff between two watches of a store.

use std::time::Duration;

use holdoff_policy::{Failure, Growth, Jitter, Policy};
use holdoff_retry::Requeue;

/// The number of consecutive watches that received no event. In the meantime waiters ask the store by themselves.
#[derive(Debug)]
pub(super) struct Again {
    policy: Policy,
    failures: Requeue,
}

impl Again {
    pub(super) fn new() -> Self {
        Self { policy: policy(), failures: Requeue::new() }
    }

    /// Resets the backoff after an event was received.
    pub(super) fn heard(&mut self) {
        self.failures.succeeded();
    }

    /// Waits for the backoff before the next watch.
    pub(super) async fn wait(&mut self) {
        let pause = self.failures.failed(&self.policy, &Failure::transient());
        tokio::time::sleep(pause.unwrap_or(self.policy.cap())).await;
    }
}

fn policy() -> Policy {
    let builder = Policy::builder(Growth::exponential(Duration::from_millis(100), 2.0))
        .cap(Duration::from_secs(30))
        .jitter(Jitter::Full)
        .attempts(Policy::UNLIMITED);
    // These numbers are valid; a test checks it.
    builder.build().unwrap_or_else(|_| Policy::standard())
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn the_policy_is_valid() {
        assert_eq!((policy().cap(), policy().attempts()), (Duration::from_secs(30), Policy::UNLIMITED));
    }

    #[tokio::test(start_paused = true)]
    async fn who_hears_nothing_waits_longer_until_something_is_heard() {
        let (mut again, first) = (Again::new(), Duration::from_millis(101));
        let mut longest = Duration::ZERO;
        for _ in 0..50 {
            let begun = Instant::now();
            again.wait().await;
            longest = longest.max(begun.elapsed());
        }
        assert!(longest > first && longest <= policy().cap() + Duration::from_millis(1), "{longest:?}");
        again.heard();
        let begun = Instant::now();
        again.wait().await;
        assert!(begun.elapsed() <= first, "{:?}", begun.elapsed());
    }
}

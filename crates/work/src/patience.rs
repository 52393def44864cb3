//! Calls to the store are retried by our own means: a dropped connection, a deadlock, a restart pass by themselves.

use std::time::Duration;

use holdoff_policy::{Growth, Jitter, Policy};
use holdoff_retry::Retry;

use crate::{Error, metrics};

/// How a caller's request waits for the store: long enough for a failover's hiccup, not longer.
pub(crate) fn for_callers() -> Policy {
    policy(12, Some(Duration::from_secs(15)))
}

/// How a worker's report waits for the store: as long as it takes.
pub(crate) fn for_reports() -> Policy {
    policy(Policy::UNLIMITED, None)
}

fn policy(attempts: u32, deadline: Option<Duration>) -> Policy {
    let builder = Policy::builder(Growth::exponential(Duration::from_millis(20), 2.0))
        .cap(Duration::from_secs(2))
        .jitter(Jitter::Full)
        .attempts(attempts);
    let builder = match deadline {
        Some(deadline) => builder.deadline(deadline),
        None => builder,
    };
    // These numbers are valid, which a test sees to.
    builder.build().unwrap_or_else(|_| Policy::standard())
}

/// Calls the store until it answers, by this policy. The call is told whether it is a repeated one.
pub(crate) async fn patiently<T, F>(policy: &Policy, mut call: impl FnMut(bool) -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut again = false;
    let retried = Retry::new(policy)
        .run(|| {
            let now = std::mem::replace(&mut again, true);
            if now {
                metrics::store_retried();
            }
            call(now)
        })
        .await;
    retried.map_err(|failed| match failed.into_error() {
        Some(error) => error,
        None => Error::NotPossible("the store was not asked".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policies_are_valid() {
        assert_eq!(for_callers().cap(), Duration::from_secs(2));
        assert_eq!(for_reports().attempts(), Policy::UNLIMITED);
    }
}

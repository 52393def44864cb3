//! Calls to the store: with a limit on their time, because a store may hang, and retried, because a dropped connection, a
//! deadlock and a restart are transient.

use std::time::Duration;

use holdoff_policy::{Growth, Jitter, Policy};
use holdoff_retry::Retry;

use crate::store::Store;
use crate::{Error, metrics};

/// The time in which the store must answer a call of a worker. Beyond it, the call counts as failed. It is longer than
/// the time that the stores wait for locks.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// The same for the upkeep of the tables. It is longer than the time that Postgres gives a statement.
pub(crate) const UPKEEP_TIMEOUT: Duration = Duration::from_secs(70);

/// Calls the store once. Returns an error if it does not answer within `limit`.
pub(crate) async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::time::timeout(limit, call).await.unwrap_or(Err(Error::Unresponsive { after: limit }))
}

/// Returns the policy for calls on behalf of a caller: 12 attempts within 15 s, enough for a short failover.
pub(crate) fn for_callers() -> Policy {
    policy(12, Some(Duration::from_secs(15)))
}

/// Returns the policy for a worker's reports: attempts and time are unlimited.
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
    // These numbers are valid; a test checks that.
    builder.build().unwrap_or_else(|_| Policy::standard())
}

/// Calls the store, and retries by this policy. The argument of `call` says whether the call is a repetition.
pub(crate) async fn with_retry<T, F>(policy: &Policy, call: impl FnMut(bool) -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    // The deadline of the policy, if it has one, ends the last attempt as well.
    let limit = if policy.deadline().is_none() { CALL_TIMEOUT } else { Duration::MAX };
    retry(policy, limit, call).await
}

/// Migrates the store, and retries like [`for_callers`]. It has no time limit: the index of a large table takes minutes.
pub(crate) async fn migrate(store: &dyn Store) -> Result<(), Error> {
    retry(&policy(12, None), Duration::MAX, |_| store.migrate()).await
}

async fn retry<T, F>(policy: &Policy, limit: Duration, mut call: impl FnMut(bool) -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut again = false;
    let retry = Retry::new(policy);
    let retried = retry
        .run(|| {
            let now = std::mem::replace(&mut again, true);
            if now {
                metrics::store_retried();
            }
            within(limit, call(now))
        })
        .await;
    // Without an error of an attempt the deadline has ended the first one, which may have had its effect.
    let timed_out = || Error::Unresponsive { after: policy.deadline().unwrap_or(limit) };
    retried.map_err(|failed| failed.into_error().unwrap_or_else(timed_out))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The call may have had its effect, so the error must not say that nothing has happened.
    #[tokio::test(start_paused = true)]
    async fn a_call_that_the_deadline_ends_is_a_timeout() {
        let policy = for_callers();
        let outcome: Result<(), _> = with_retry(&policy, |_| std::future::pending()).await;
        let deadline = policy.deadline().unwrap();
        assert!(matches!(outcome, Err(Error::Unresponsive { after }) if after == deadline), "{outcome:?}");
    }

    #[test]
    fn the_policies_are_valid() {
        assert_eq!(for_callers().cap(), Duration::from_secs(2));
        assert_eq!(for_reports().attempts(), Policy::UNLIMITED);
    }
}

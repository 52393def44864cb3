//! All metrics of this crate: names, help texts, and the functions that record them.
//!
//! Label values are namespaces, up to a limit, and constants of this crate; never a key.

use std::collections::HashSet;
use std::sync::LazyLock;
use std::time::Duration;

use metrics::{counter, describe_counter, describe_histogram, histogram};
use parking_lot::RwLock;

use crate::wait::Backoff;
use crate::{Error, LockKey};

const ATTEMPTS: &str = "holdoff_lock_attempts_total";
const ACQUISITIONS: &str = "holdoff_lock_acquisitions_total";
const WAIT_SECONDS: &str = "holdoff_lock_wait_seconds";
const HOLD_SECONDS: &str = "holdoff_lock_hold_seconds";
const BACKOFF_SECONDS: &str = "holdoff_lock_backoff_seconds";
const LOST: &str = "holdoff_lock_lost_total";
const RENEWALS_FAILED: &str = "holdoff_lock_renewals_failed_total";
const FOUND_BEFORE_GRANT: &str = "holdoff_lock_found_before_grant_total";
const WAKE_UPS: &str = "holdoff_lock_wake_ups_total";
const STORE_CLOCK_STEPS: &str = "holdoff_lock_store_clock_steps_total";

/// The attempts with a label of their own. All later attempts share one label.
const LABELLED: [&str; 9] = ["1", "2", "3", "4", "5", "6", "7", "8", "9"];

/// The namespaces with series of their own. All further namespaces share one value: a client that may use all namespaces
/// cannot exhaust the memory of the recorder, which never forgets a value.
#[derive(Debug, Default)]
struct Labels(RwLock<HashSet<String>>);

impl Labels {
    const MOST: usize = 1000;
    const OTHER: &str = "other";

    fn of<'a>(&self, namespace: &'a str) -> &'a str {
        if self.0.read().contains(namespace) {
            return namespace;
        }
        let mut known = self.0.write();
        if known.len() < Self::MOST || known.contains(namespace) {
            known.insert(namespace.to_owned());
            namespace
        } else {
            Self::OTHER
        }
    }
}

fn namespace(key: &LockKey) -> String {
    static LABELS: LazyLock<Labels> = LazyLock::new(Labels::default);
    LABELS.of(key.namespace()).to_owned()
}

/// Registers the help text of every metric. Call it once, after the recorder is installed.
pub fn describe() {
    describe_counter!(ATTEMPTS, "requests for a lock to the store, including those after a notification");
    describe_counter!(ACQUISITIONS, "completed acquisitions, by outcome");
    describe_histogram!(WAIT_SECONDS, metrics::Unit::Seconds, "duration of acquisitions, by outcome");
    describe_histogram!(HOLD_SECONDS, metrics::Unit::Seconds, "time that locks were held");
    describe_histogram!(BACKOFF_SECONDS, metrics::Unit::Seconds, "backoffs drawn, by attempt");
    describe_counter!(LOST, "held locks that were lost: not renewed in time, or force-released");
    describe_counter!(RENEWALS_FAILED, "renewals that failed or had no response");
    describe_counter!(FOUND_BEFORE_GRANT, "values that a probe found before the lock was acquired");
    describe_counter!(WAKE_UPS, "waits that ended early because of a notification or an expired lease");
    describe_counter!(
        STORE_CLOCK_STEPS,
        "steps of the store's wall clock that this process saw, by direction"
    );
}

/// Returns the outcome label of an acquisition.
pub(crate) fn outcome(error: Option<&Error>) -> &'static str {
    match error {
        None => "acquired",
        Some(Error::Contended { .. } | Error::TooManyWaiters { .. }) => "contended",
        Some(Error::DeadlineExceeded { .. }) => "deadline",
        Some(Error::Cancelled) => "cancelled",
        Some(_) => "error",
    }
}

pub(crate) fn requested(key: &LockKey) {
    counter!(ATTEMPTS, "namespace" => namespace(key)).increment(1);
}

pub(crate) fn ended(key: &LockKey, outcome: &'static str, waited: Duration) {
    counter!(ACQUISITIONS, "namespace" => namespace(key), "outcome" => outcome).increment(1);
    histogram!(WAIT_SECONDS, "namespace" => namespace(key), "outcome" => outcome)
        .record(waited.as_secs_f64());
}

pub(crate) fn held(key: &LockKey, held: Duration) {
    histogram!(HOLD_SECONDS, "namespace" => namespace(key)).record(held.as_secs_f64());
}

pub(crate) fn backed_off(backoff: Backoff) {
    let index = usize::try_from(backoff.after.get() - 1).unwrap_or(usize::MAX);
    let attempt = LABELLED.get(index).copied().unwrap_or("10+");
    histogram!(BACKOFF_SECONDS, "attempt" => attempt).record(backoff.delay.as_secs_f64());
}

pub(crate) fn lost(key: &LockKey) {
    counter!(LOST, "namespace" => namespace(key)).increment(1);
}

pub(crate) fn renewal_failed(key: &LockKey) {
    counter!(RENEWALS_FAILED, "namespace" => namespace(key)).increment(1);
}

pub(crate) fn found_before_grant(key: &LockKey) {
    counter!(FOUND_BEFORE_GRANT, "namespace" => namespace(key)).increment(1);
}

pub(crate) fn woken(key: &LockKey) {
    counter!(WAKE_UPS, "namespace" => namespace(key)).increment(1);
}

/// Counts a step of the store's clock.
#[cfg(feature = "postgres")]
pub(crate) fn store_clock_stepped(direction: &'static str) {
    counter!(STORE_CLOCK_STEPS, "direction" => direction).increment(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_beyond_the_limit_share_a_series() {
        let labels = Labels::default();
        let names: Vec<String> = (0..=Labels::MOST).map(|number| number.to_string()).collect();
        let (last, first) = names.split_last().unwrap();
        assert!(first.iter().all(|name| labels.of(name) == name));
        assert_eq!((labels.of(last), labels.of("another")), (Labels::OTHER, Labels::OTHER));
        assert_eq!(labels.of("7"), "7", "a namespace keeps its series");
    }
}

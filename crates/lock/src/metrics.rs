//! All metrics of this crate: names, help texts, and the functions that record them.
//!
//! Label values are namespaces, of which operators choose a few, and constants of this crate; never a key.

use std::time::Duration;

use metrics::{counter, describe_counter, describe_histogram, histogram};

use crate::wait::Backoff;
use crate::{Error, Key};

const ATTEMPTS: &str = "holdoff_lock_attempts_total";
const ACQUISITIONS: &str = "holdoff_lock_acquisitions_total";
const WAIT_SECONDS: &str = "holdoff_lock_wait_seconds";
const HOLD_SECONDS: &str = "holdoff_lock_hold_seconds";
const BACKOFF_SECONDS: &str = "holdoff_lock_backoff_seconds";
const LOST: &str = "holdoff_lock_lost_total";
const RENEWALS_FAILED: &str = "holdoff_lock_renewals_failed_total";
const FOUND_WAITING: &str = "holdoff_lock_found_waiting_total";
const WAKE_UPS: &str = "holdoff_lock_wake_ups_total";

/// The attempts with a label of their own. All later attempts share one label.
const LABELLED: [&str; 9] = ["1", "2", "3", "4", "5", "6", "7", "8", "9"];

/// Registers the help text of every metric. Call it once, after the recorder is installed.
pub fn describe() {
    describe_counter!(ATTEMPTS, "times that a store was asked for a lock, wake-ups included");
    describe_counter!(ACQUISITIONS, "acquisitions that ended, by outcome");
    describe_histogram!(WAIT_SECONDS, metrics::Unit::Seconds, "how long acquisitions took, by outcome");
    describe_histogram!(HOLD_SECONDS, metrics::Unit::Seconds, "how long locks were held");
    describe_histogram!(BACKOFF_SECONDS, metrics::Unit::Seconds, "backoffs drawn, by attempt");
    describe_counter!(LOST, "locks that were lost while they were held");
    describe_counter!(RENEWALS_FAILED, "renewals that a store did not answer");
    describe_counter!(FOUND_WAITING, "things found made by somebody else before the lock was had");
    describe_counter!(WAKE_UPS, "waits that ended because a lock was, or should be, free");
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

pub(crate) fn asked(key: &Key) {
    counter!(ATTEMPTS, "namespace" => key.namespace().to_owned()).increment(1);
}

pub(crate) fn ended(key: &Key, outcome: &'static str, waited: Duration) {
    counter!(ACQUISITIONS, "namespace" => key.namespace().to_owned(), "outcome" => outcome).increment(1);
    histogram!(WAIT_SECONDS, "namespace" => key.namespace().to_owned(), "outcome" => outcome)
        .record(waited.as_secs_f64());
}

pub(crate) fn held(key: &Key, held: Duration) {
    histogram!(HOLD_SECONDS, "namespace" => key.namespace().to_owned()).record(held.as_secs_f64());
}

pub(crate) fn backed_off(backoff: Backoff) {
    let index = usize::try_from(backoff.after.get() - 1).unwrap_or(usize::MAX);
    let attempt = LABELLED.get(index).copied().unwrap_or("10+");
    histogram!(BACKOFF_SECONDS, "attempt" => attempt).record(backoff.delay.as_secs_f64());
}

pub(crate) fn lost(key: &Key) {
    counter!(LOST, "namespace" => key.namespace().to_owned()).increment(1);
}

pub(crate) fn renewal_failed(key: &Key) {
    counter!(RENEWALS_FAILED, "namespace" => key.namespace().to_owned()).increment(1);
}

pub(crate) fn found_waiting(key: &Key) {
    counter!(FOUND_WAITING, "namespace" => key.namespace().to_owned()).increment(1);
}

pub(crate) fn woken(key: &Key) {
    counter!(WAKE_UPS, "namespace" => key.namespace().to_owned()).increment(1);
}

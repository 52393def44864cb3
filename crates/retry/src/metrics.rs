//! The metrics of this crate: every name, its help, and the one place that records it.
//!
//! All are labelled with the operation's name, which must be one of a few. Success is counted per
//! operation, not per attempt: the share that succeeded is `success / (success + stopped)`.

use std::time::Duration;

use holdoff_policy::Failure;
use metrics::{Unit, counter, describe_counter, describe_histogram, histogram};

use crate::Stopped;

/// How long each wait was. Labels: `operation`.
pub const DELAY_SECONDS: &str = "holdoff_retry_delay_seconds";
/// Attempts that failed and will be repeated. Labels: `operation`, `attempt`, `class`.
pub const RETRIES_TOTAL: &str = "holdoff_retry_retries_total";
/// Operations that ended without success. Labels: `operation`, `reason`; `exhausted` is one of them.
pub const STOPPED_TOTAL: &str = "holdoff_retry_stopped_total";
/// Operations that succeeded, by the attempt that did. Labels: `operation`, `attempt`.
pub const SUCCESS_TOTAL: &str = "holdoff_retry_success_total";
/// Waits in which the other side's `Retry-After` was honoured. Labels: `operation`.
pub const RETRY_AFTER_HONOURED_TOTAL: &str = "holdoff_retry_retry_after_honoured_total";
/// What `Retry-After` asked for. Labels: `operation`.
pub const RETRY_AFTER_SECONDS: &str = "holdoff_retry_retry_after_seconds";

/// Credentials that could not be refreshed. Labels: `operation`.
pub const REFRESH_FAILED_TOTAL: &str = "holdoff_retry_refresh_failed_total";

/// The operation of whoever named none. Its successes at the first attempt are not counted, so that an
/// unnamed retry costs nothing when nothing is wrong.
pub const UNNAMED: &str = "unnamed";

/// Tells the recorder what the metrics mean; call it once, after installing the recorder.
pub fn describe() {
    describe_histogram!(DELAY_SECONDS, Unit::Seconds, "How long each wait before another attempt was.");
    describe_counter!(RETRIES_TOTAL, "Attempts that failed and were repeated.");
    describe_counter!(STOPPED_TOTAL, "Operations that ended without success, by reason.");
    describe_counter!(SUCCESS_TOTAL, "Operations that succeeded, by the attempt that did.");
    describe_counter!(RETRY_AFTER_HONOURED_TOTAL, "Waits in which the server's Retry-After was honoured.");
    describe_counter!(REFRESH_FAILED_TOTAL, "Credentials that could not be refreshed.");
    describe_histogram!(RETRY_AFTER_SECONDS, Unit::Seconds, "What the server's Retry-After asked for.");
}

pub(crate) fn succeeded(operation: &str, attempt: u32) {
    counter!(SUCCESS_TOTAL, "operation" => operation.to_owned(), "attempt" => bounded(attempt)).increment(1);
}

pub(crate) fn stopped(operation: &str, stopped: Stopped) {
    counter!(STOPPED_TOTAL, "operation" => operation.to_owned(), "reason" => stopped.name()).increment(1);
}

pub(crate) fn refresh_failed(operation: &str) {
    counter!(REFRESH_FAILED_TOTAL, "operation" => operation.to_owned()).increment(1);
}

pub(crate) fn retried(operation: &str, attempt: u32, failure: &Failure, delay: Duration) {
    let name = || operation.to_owned();
    let class = failure.class().name();
    counter!(RETRIES_TOTAL, "operation" => name(), "attempt" => bounded(attempt), "class" => class)
        .increment(1);
    histogram!(DELAY_SECONDS, "operation" => name()).record(delay.as_secs_f64());
    if let Some(asked) = failure.retry_after() {
        histogram!(RETRY_AFTER_SECONDS, "operation" => name()).record(asked.as_secs_f64());
        if delay >= asked {
            counter!(RETRY_AFTER_HONOURED_TOTAL, "operation" => name()).increment(1);
        }
    }
}

/// Attempt numbers as label values: a few, however many attempts there are.
fn bounded(attempt: u32) -> &'static str {
    const NAMES: [&str; 11] = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "more"];
    let index = usize::try_from(attempt.saturating_sub(1)).unwrap_or(usize::MAX);
    NAMES.get(index).copied().unwrap_or("more")
}

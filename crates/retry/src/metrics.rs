//! The metrics of this crate: the names, the help texts, and the functions that record them.
//!
//! Every metric has the operation's name as a label, so use a small set of names. Success is counted per
//! operation, not per attempt: the success rate is `success / (success + stopped)`.
//!
//! A [`Retry`](crate::Retry) resolves its counter of successes at the first attempt once. Install the recorder before.

use std::borrow::Cow;
use std::sync::OnceLock;
use std::time::Duration;

use holdoff_policy::Failure;
use metrics::{Counter, SharedString, Unit, counter, describe_counter, describe_histogram, histogram};

use crate::StopReason;

/// The duration of each wait. Labels: `operation`.
pub const DELAY_SECONDS: &str = "holdoff_retry_delay_seconds";
/// Failed attempts that are followed by another attempt. Labels: `operation`, `attempt`, `class`.
pub const RETRIES_TOTAL: &str = "holdoff_retry_retries_total";
/// Operations that ended without success. Labels: `operation`, `reason`; `exhausted` is one of the reasons.
pub const STOPPED_TOTAL: &str = "holdoff_retry_stopped_total";
/// Operations that succeeded, by the number of the successful attempt. Labels: `operation`, `attempt`.
pub const SUCCESS_TOTAL: &str = "holdoff_retry_success_total";
/// Waits in which the executor honoured the server's `Retry-After`. Labels: `operation`.
pub const RETRY_AFTER_HONOURED_TOTAL: &str = "holdoff_retry_retry_after_honoured_total";
/// The waits that `Retry-After` asked for. Labels: `operation`.
pub const RETRY_AFTER_SECONDS: &str = "holdoff_retry_retry_after_seconds";

/// Failed refreshes of credentials. Labels: `operation`.
pub const REFRESH_FAILED_TOTAL: &str = "holdoff_retry_refresh_failed_total";

/// The label of operations without a name. Their successes at the first attempt are not counted, so that an
/// unnamed retry has no cost without failures.
pub const UNNAMED: &str = "unnamed";

/// Registers the help texts with the recorder; call it once, after the recorder is installed.
pub fn describe() {
    describe_histogram!(DELAY_SECONDS, Unit::Seconds, "Duration of each wait before a retry.");
    describe_counter!(RETRIES_TOTAL, "Failed attempts that were followed by a retry.");
    describe_counter!(STOPPED_TOTAL, "Operations that ended without success, by reason.");
    describe_counter!(SUCCESS_TOTAL, "Operations that succeeded, by the number of the successful attempt.");
    describe_counter!(RETRY_AFTER_HONOURED_TOTAL, "Waits in which the server's Retry-After was honoured.");
    describe_counter!(REFRESH_FAILED_TOTAL, "Failed refreshes of credentials.");
    describe_histogram!(RETRY_AFTER_SECONDS, Unit::Seconds, "Waits requested by the server's Retry-After.");
}

/// The name of an operation, and the handle of its commonest counter.
#[derive(Debug)]
pub(crate) struct Operation {
    name: SharedString,
    /// The successes at the first attempt, resolved by the first of them. The recorder must be installed by then.
    first_success: OnceLock<Counter>,
}

/// The operation of calls without a name.
pub(crate) static NAMELESS: Operation =
    Operation { name: SharedString::const_str(UNNAMED), first_success: OnceLock::new() };

impl Operation {
    pub(crate) fn new(name: Cow<'static, str>) -> Self {
        Self { name: name.into(), first_success: OnceLock::new() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    #[inline]
    pub(crate) fn succeeded(&self, attempt: u32) {
        let resolve =
            || counter!(SUCCESS_TOTAL, "operation" => self.name.clone(), "attempt" => attempt_label(attempt));
        if attempt == 1 {
            self.first_success.get_or_init(resolve).increment(1);
        } else {
            resolve().increment(1);
        }
    }

    pub(crate) fn stopped(&self, stopped: StopReason) {
        counter!(STOPPED_TOTAL, "operation" => self.name.clone(), "reason" => stopped.name()).increment(1);
    }

    pub(crate) fn refresh_failed(&self) {
        counter!(REFRESH_FAILED_TOTAL, "operation" => self.name.clone()).increment(1);
    }

    pub(crate) fn retried(&self, attempt: u32, failure: &Failure, delay: Duration) {
        let name = || self.name.clone();
        let class = failure.class().name();
        counter!(RETRIES_TOTAL, "operation" => name(), "attempt" => attempt_label(attempt), "class" => class)
            .increment(1);
        histogram!(DELAY_SECONDS, "operation" => name()).record(delay.as_secs_f64());
        if let Some(asked) = failure.retry_after() {
            histogram!(RETRY_AFTER_SECONDS, "operation" => name()).record(asked.as_secs_f64());
            if delay >= asked {
                counter!(RETRY_AFTER_HONOURED_TOTAL, "operation" => name()).increment(1);
            }
        }
    }
}

/// Returns the value of the label `attempt`: `1` to `10`, then `more`.
pub fn attempt_label(attempt: u32) -> &'static str {
    const NAMES: [&str; 11] = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "more"];
    let index = usize::try_from(attempt.saturating_sub(1)).unwrap_or(usize::MAX);
    NAMES.get(index).copied().unwrap_or("more")
}

//! All metrics of this crate: names, help texts, and the functions that record them.
//!
//! Label values are the names of namespaces, queues and operations, and fixed words. The limits on lanes bound the
//! number of names; the further names of a namespace are counted together, as `other`.

use std::time::Duration;

use holdoff_retry::metrics::attempt_label;
use metrics::{
    Counter, Histogram, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

use crate::record::QueueStats;
use crate::store::{AttemptOutcome, Exit, FailureText, Report};

const SUBMITTED: &str = "holdoff_work_submitted_total";
const DUPLICATES: &str = "holdoff_work_duplicates_total";
const FINISHED: &str = "holdoff_work_finished_total";
const RETRIES: &str = "holdoff_work_retries_total";
const SUCCESS: &str = "holdoff_work_success_total";
const STOPPED: &str = "holdoff_work_stopped_total";
const RETRY_AFTER_HONOURED: &str = "holdoff_work_retry_after_honoured_total";
const RETRY_AFTER_SECONDS: &str = "holdoff_work_retry_after_seconds";
const FENCED: &str = "holdoff_work_fenced_total";
const RESCUED: &str = "holdoff_work_rescued_total";
const EXPIRED: &str = "holdoff_work_expired_total";
const RUN_SECONDS: &str = "holdoff_work_run_seconds";
const DELAY_SECONDS: &str = "holdoff_work_delay_seconds";
const STEPS: &str = "holdoff_work_steps";
const OLDEST_DUE: &str = "holdoff_work_oldest_due_seconds";
const STALE: &str = "holdoff_work_stale";
const SNAPSHOT: &str = "holdoff_work_oldest_snapshot_seconds";
const PRUNED: &str = "holdoff_work_pruned_total";
const STORE_RETRIES: &str = "holdoff_work_store_retries_total";
const NOTIFICATIONS: &str = "holdoff_work_notifications_total";
const POLICY_DRIFT: &str = "holdoff_work_policy_drift";
const HTTP_SECONDS: &str = "holdoff_work_http_seconds";
const BREAKERS_OPEN: &str = "holdoff_work_breakers_open";

/// The label value for all names beyond the limits.
pub(crate) const OTHER: &str = "other";

/// Registers the help text of every metric. Call it once, after the recorder is installed.
pub fn describe() {
    describe_counter!(SUBMITTED, "steps that were accepted");
    describe_counter!(DUPLICATES, "tasks rejected as duplicates of an earlier key");
    describe_counter!(FINISHED, "runs that ended, by outcome");
    describe_counter!(RETRIES, "failed attempts that were followed by a retry");
    describe_counter!(SUCCESS, "steps that succeeded, by the number of the successful attempt");
    describe_counter!(STOPPED, "steps that failed finally or are in conflict, by reason");
    describe_counter!(RETRY_AFTER_HONOURED, "waits in which Retry-After was honoured");
    describe_histogram!(RETRY_AFTER_SECONDS, metrics::Unit::Seconds, "waits requested by Retry-After");
    describe_counter!(FENCED, "reports rejected because their lease had expired");
    describe_counter!(RESCUED, "steps rescued from lost workers");
    describe_counter!(EXPIRED, "steps that failed because they were not started by their start-by time");
    describe_histogram!(RUN_SECONDS, metrics::Unit::Seconds, "duration of a run");
    describe_histogram!(DELAY_SECONDS, metrics::Unit::Seconds, "delay before the next attempt");
    describe_gauge!(STEPS, "steps by state");
    describe_gauge!(OLDEST_DUE, metrics::Unit::Seconds, "time since the oldest due step became due");
    describe_gauge!(STALE, "ready and running steps older than the staleness limit");
    describe_gauge!(
        SNAPSHOT,
        metrics::Unit::Seconds,
        "age of the oldest snapshot, which prevents the removal of dead rows"
    );
    describe_counter!(PRUNED, "finished steps that were pruned");
    describe_counter!(STORE_RETRIES, "retried calls to the store");
    describe_counter!(NOTIFICATIONS, "notifications about failed and conflicted steps");
    describe_gauge!(
        POLICY_DRIFT,
        "1 if this node's policy file is not the active version, or if this node cannot use the active version"
    );
    describe_histogram!(HTTP_SECONDS, metrics::Unit::Seconds, "duration of HTTP requests");
    describe_gauge!(BREAKERS_OPEN, "destinations whose circuit breaker is not closed on this node");
}

/// The metrics of one lane, looked up once.
#[derive(Debug)]
pub(crate) struct LaneMetrics {
    submitted: Counter,
    duplicates: Counter,
    operation: String,
    finished: [Counter; AttemptOutcome::ALL.len()],
    /// Most steps succeed at the first attempt.
    first_success: Counter,
    fenced: Counter,
    run: Histogram,
    delay: Histogram,
}

impl LaneMetrics {
    /// Returns the metrics of these namespace, queue and operation.
    pub(crate) fn new([namespace, queue, operation]: [&str; 3]) -> Self {
        let labels = [
            ("namespace", namespace.to_owned()),
            ("queue", queue.to_owned()),
            ("operation", operation.to_owned()),
        ];
        let finished = AttemptOutcome::ALL.map(|outcome| {
            counter!(FINISHED, "namespace" => namespace.to_owned(), "queue" => queue.to_owned(),
                "operation" => operation.to_owned(), "outcome" => outcome.name())
        });
        Self {
            submitted: counter!(SUBMITTED, &labels),
            duplicates: counter!(DUPLICATES, &labels),
            operation: operation.to_owned(),
            finished,
            first_success: success(operation, 1),
            fenced: counter!(FENCED, &labels),
            run: histogram!(RUN_SECONDS, "operation" => operation.to_owned()),
            delay: histogram!(DELAY_SECONDS, "operation" => operation.to_owned()),
        }
    }

    pub(crate) fn submitted(&self) {
        self.submitted.increment(1);
    }

    pub(crate) fn duplicate(&self) {
        self.duplicates.increment(1);
    }

    /// Records an accepted report.
    pub(crate) fn finished(&self, report: &Report) {
        let outcome = report.exit.outcome();
        if let Some(counter) =
            AttemptOutcome::ALL.iter().zip(&self.finished).find(|(known, _)| **known == outcome)
        {
            counter.1.increment(1);
        }
        self.run.record(report.took.as_secs_f64());
        let attempt = u32::try_from(report.attempt).unwrap_or(1);
        match &report.exit {
            Exit::Succeeded(_) if attempt <= 1 => self.first_success.increment(1),
            Exit::Succeeded(_) => success(&self.operation, attempt).increment(1),
            Exit::Retry { delay, why, .. } => self.retried(attempt, why, *delay),
            Exit::Failed(..) | Exit::Conflicted(_) => {
                self.stopped(report.exit.stop_reason().unwrap_or_default());
            }
            Exit::Requeued { .. } => {}
        }
    }

    /// Records a granted retry: in the same way as the in-process executor, under names of its own.
    fn retried(&self, attempt: u32, why: &FailureText, delay: Duration) {
        let operation = || self.operation.clone();
        counter!(RETRIES, "operation" => operation(), "attempt" => attempt_label(attempt), "class" => why.class)
            .increment(1);
        self.delay.record(delay.as_secs_f64());
        if let Some(asked) = why.retry_after {
            histogram!(RETRY_AFTER_SECONDS, "operation" => operation()).record(asked.as_secs_f64());
            if delay >= asked {
                counter!(RETRY_AFTER_HONOURED, "operation" => operation()).increment(1);
            }
        }
    }

    /// Records that a step has failed finally, or is in conflict.
    pub(crate) fn stopped(&self, reason: &'static str) {
        counter!(STOPPED, "operation" => self.operation.clone(), "reason" => reason).increment(1);
    }

    pub(crate) fn fenced(&self) {
        self.fenced.increment(1);
    }
}

fn success(operation: &str, attempt: u32) -> Counter {
    counter!(SUCCESS, "operation" => operation.to_owned(), "attempt" => attempt_label(attempt))
}

pub(crate) fn rescued(requeued: u64, failed: u64) {
    counter!(RESCUED, "outcome" => "requeued").increment(requeued);
    counter!(RESCUED, "outcome" => "failed").increment(failed);
}

pub(crate) fn expired(count: u64) {
    counter!(EXPIRED).increment(count);
}

pub(crate) fn pruned(count: u64) {
    counter!(PRUNED).increment(count);
}

pub(crate) fn store_retried() {
    counter!(STORE_RETRIES).increment(1);
}

pub(crate) fn policy_drift(differs: bool) {
    gauge!(POLICY_DRIFT).set(f64::from(u8::from(differs)));
}

pub(crate) fn notified() {
    counter!(NOTIFICATIONS).increment(1);
}

pub(crate) fn oldest_snapshot(age: Duration) {
    gauge!(SNAPSHOT).set(age.as_secs_f64());
}

/// Records the duration of a request by its outcome: `ok`, the class of the failure, or `busy`.
#[cfg(feature = "http")]
pub(crate) fn http_took(took: Duration, answer: &Result<crate::store::StepOutput, crate::Fault>) {
    let outcome = match answer {
        Ok(_) => "ok",
        Err(fault) => fault.failure().map_or("busy", |failure| failure.class().name()),
    };
    histogram!(HTTP_SECONDS, "outcome" => outcome).record(took.as_secs_f64());
}

/// Records the number of destinations with a breaker that is not closed.
#[cfg(feature = "http")]
#[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
pub(crate) fn broken(destinations: usize) {
    gauge!(BREAKERS_OPEN).set(destinations as f64);
}

#[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
pub(crate) fn counted([namespace, queue, operation]: [&str; 3], stats: &QueueStats) {
    let labels = [
        ("namespace", namespace.to_owned()),
        ("queue", queue.to_owned()),
        ("operation", operation.to_owned()),
    ];
    let states = [
        ("blocked", stats.blocked),
        ("due", stats.due),
        ("waiting", stats.waiting),
        ("running", stats.running),
        ("failed", stats.failed),
        ("conflicted", stats.conflicted),
    ];
    for (state, count) in states {
        let [namespace, queue, operation] = labels.clone().map(|(_, value)| value);
        let gauge = gauge!(STEPS, "namespace" => namespace, "queue" => queue, "operation" => operation, "state" => state);
        gauge.set(count as f64);
    }
    gauge!(OLDEST_DUE, &labels).set(stats.oldest_due.as_secs_f64());
    gauge!(STALE, &labels).set(stats.stale as f64);
}

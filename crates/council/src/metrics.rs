//! The metrics of this crate: names, help texts, and the functions that count.
//!
//! Label values come from a fixed set of words. They never contain a council, a key, a slot or an operation.

use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

use crate::{DeviceCounters, Outcome};

const ATTEMPTS: &str = "holdoff_council_attempts_total";
const REBUILDS: &str = "holdoff_council_rebuilds_total";
const LOST_SLOTS: &str = "holdoff_council_lost_slots_total";
const PREEMPTIONS: &str = "holdoff_council_preemptions_total";
const WAITS: &str = "holdoff_council_waits_total";
const WAITED: &str = "holdoff_council_waited_seconds_total";
const RETRANSMISSIONS: &str = "holdoff_council_retransmissions_total";
const SLOTS: &str = "holdoff_council_slots_total";
const SLOT_SECONDS: &str = "holdoff_council_slot_seconds";
const BATCH_SIZE: &str = "holdoff_council_batch_size";
const OPERATIONS: &str = "holdoff_council_operations_total";
const OPERATION_SECONDS: &str = "holdoff_council_operation_seconds";
const FORGED: &str = "holdoff_council_forged_total";
const REFUSED: &str = "holdoff_council_refused_total";
const COMPACTIONS: &str = "holdoff_council_compactions_total";
const SNAPSHOTS_SENT: &str = "holdoff_council_snapshots_sent_total";
const REQUESTS: &str = "holdoff_acceptor_requests_total";
const REFUSALS: &str = "holdoff_acceptor_refusals_total";
const COMMIT_SECONDS: &str = "holdoff_acceptor_commit_seconds";
const BATCH_REQUESTS: &str = "holdoff_acceptor_batch_requests";
const COUNCILS: &str = "holdoff_acceptor_councils";
const MEMORY_BYTES: &str = "holdoff_acceptor_memory_bytes";
const LOADS: &str = "holdoff_acceptor_loads_total";
const WATCHERS: &str = "holdoff_acceptor_watchers";
const STOPPED: &str = "holdoff_acceptor_stopped";

/// Registers the help text of every metric. Call it once, after the recorder is installed.
pub fn describe() {
    describe_counter!(ATTEMPTS, "ballots that devices have started");
    describe_counter!(REBUILDS, "operations rebuilt because another device won the slot");
    describe_counter!(LOST_SLOTS, "slots in which the device proposed a value and lost");
    describe_counter!(PREEMPTIONS, "attempts ended by a higher ballot, by phase");
    describe_counter!(WAITS, "waits after a higher ballot preempted an attempt");
    describe_counter!(WAITED, Unit::Seconds, "planned duration of these waits");
    describe_counter!(RETRANSMISSIONS, "requests repeated because too few acceptors answered");
    describe_counter!(SLOTS, "slots applied, by the author of the value");
    describe_histogram!(
        SLOT_SECONDS,
        Unit::Seconds,
        "time from the first request for a slot to the decision of an own value"
    );
    describe_histogram!(BATCH_SIZE, "operations in a value of this device");
    describe_counter!(OPERATIONS, "operations that ended, by outcome");
    describe_histogram!(OPERATION_SECONDS, Unit::Seconds, "duration of operations, by outcome");
    describe_counter!(FORGED, "reported values without a valid signature, and snapshots without a majority");
    describe_counter!(REFUSED, "requests that acceptors refused");
    describe_counter!(COMPACTIONS, "compactions that devices started by themselves");
    describe_counter!(SNAPSHOTS_SENT, "snapshots that devices sent to acceptors");
    describe_counter!(REQUESTS, "requests answered, by kind and result");
    describe_counter!(REFUSALS, "requests refused, by reason");
    describe_histogram!(COMMIT_SECONDS, Unit::Seconds, "duration of a commit to disk");
    describe_histogram!(BATCH_REQUESTS, "requests in a batch");
    describe_gauge!(COUNCILS, "councils with data on the acceptor's disk");
    describe_gauge!(MEMORY_BYTES, Unit::Bytes, "approximate memory of the cached councils");
    describe_counter!(LOADS, "councils read from the disk");
    describe_gauge!(WATCHERS, "watches: pairs of a connection and a council");
    describe_gauge!(STOPPED, "1 if the acceptor has stopped after a disk failure");
}

pub(crate) fn requested(kind: &'static str, is_refused: bool) {
    let result = if is_refused { "refused" } else { "answered" };
    counter!(REQUESTS, "kind" => kind, "result" => result).increment(1);
}

pub(crate) fn refused(reason: &'static str) {
    counter!(REFUSALS, "reason" => reason).increment(1);
}

pub(crate) fn committed(took: Duration) {
    histogram!(COMMIT_SECONDS).record(took.as_secs_f64());
}

pub(crate) fn answered(requests: usize) {
    histogram!(BATCH_REQUESTS).record(u32::try_from(requests).unwrap_or(u32::MAX));
}

pub(crate) fn keeps(councils: usize, memory: usize) {
    gauge!(COUNCILS).set(u32::try_from(councils).unwrap_or(u32::MAX));
    gauge!(MEMORY_BYTES).set(u32::try_from(memory).unwrap_or(u32::MAX));
}

pub(crate) fn loaded() {
    counter!(LOADS).increment(1);
}

pub(crate) fn watched(watchers: usize) {
    gauge!(WATCHERS).set(u32::try_from(watchers).unwrap_or(u32::MAX));
}

pub(crate) fn stopped(is_stopped: bool) {
    gauge!(STOPPED).set(f64::from(u8::from(is_stopped)));
}

pub(crate) fn counted(before: &DeviceCounters, now: &DeviceCounters) {
    let grown = |count: fn(&DeviceCounters) -> u64| count(now).saturating_sub(count(before));
    let slots = grown(|counts| counts.slots);
    let own = grown(|counts| counts.own_slots);
    counter!(ATTEMPTS).increment(grown(|counts| counts.ballots));
    counter!(REBUILDS).increment(grown(|counts| counts.rebuilds));
    counter!(LOST_SLOTS).increment(grown(|counts| counts.lost_slots));
    counter!(PREEMPTIONS, "phase" => "preparing").increment(grown(|counts| counts.preempted_preparing));
    counter!(PREEMPTIONS, "phase" => "accepting").increment(grown(|counts| counts.preempted_accepting));
    counter!(WAITS).increment(grown(|counts| counts.waits));
    counter!(WAITED).increment(now.waited_us / 1_000_000 - before.waited_us / 1_000_000);
    counter!(RETRANSMISSIONS).increment(grown(|counts| counts.retransmissions));
    counter!(SLOTS, "author" => "self").increment(own);
    counter!(SLOTS, "author" => "other").increment(slots.saturating_sub(own));
    counter!(FORGED).increment(grown(|counts| counts.forged));
    counter!(REFUSED).increment(grown(|counts| counts.refused));
    counter!(COMPACTIONS).increment(grown(|counts| counts.compactions));
    counter!(SNAPSHOTS_SENT).increment(grown(|counts| counts.snapshots_sent));
}

pub(crate) fn slot_took(took: Duration) {
    histogram!(SLOT_SECONDS).record(took.as_secs_f64());
}

pub(crate) fn batch(operations: usize) {
    histogram!(BATCH_SIZE).record(f64::from(u32::try_from(operations).unwrap_or(u32::MAX)));
}

pub(crate) fn ended(outcome: &Outcome, took: Option<Duration>) {
    let outcome = match outcome {
        Outcome::Committed(_) => "committed",
        Outcome::NotCommitted(_) => "not_committed",
        Outcome::Unknown => "unknown",
        Outcome::Invalid(_) => "invalid",
    };
    counter!(OPERATIONS, "outcome" => outcome).increment(1);
    if let Some(took) = took {
        histogram!(OPERATION_SECONDS, "outcome" => outcome).record(took.as_secs_f64());
    }
}

//! Every metric of this crate: names, help, and where they are counted.
//!
//! Labels are words of ours: never a council, a key or a slot.

use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

const ASKS: &str = "holdoff_acceptor_asks_total";
const REFUSALS: &str = "holdoff_acceptor_refusals_total";
const COMMIT_SECONDS: &str = "holdoff_acceptor_commit_seconds";
const BATCH_ASKS: &str = "holdoff_acceptor_batch_asks";
const COUNCILS: &str = "holdoff_acceptor_councils";
const MEMORY_BYTES: &str = "holdoff_acceptor_memory_bytes";
const LOADS: &str = "holdoff_acceptor_loads_total";
const WATCHERS: &str = "holdoff_acceptor_watchers";
const STOPPED: &str = "holdoff_acceptor_stopped";

/// Gives every metric its help text. Call it once, after the recorder is installed.
pub fn describe() {
    describe_counter!(ASKS, "questions answered, by kind and result");
    describe_counter!(REFUSALS, "questions refused, by reason");
    describe_histogram!(COMMIT_SECONDS, Unit::Seconds, "how long it took until a batch was on disk");
    describe_histogram!(BATCH_ASKS, "questions answered together, most of them behind one commit");
    describe_gauge!(COUNCILS, "councils that have something on the acceptor's disk");
    describe_gauge!(MEMORY_BYTES, Unit::Bytes, "about how much memory the councils in use take");
    describe_counter!(LOADS, "times that a council was read from the disk");
    describe_gauge!(WATCHERS, "connections that watch a council, counted once for each");
    describe_gauge!(STOPPED, "1 if the acceptor's disk has failed, and it answers nobody");
}

pub(crate) fn asked(kind: &'static str, is_refused: bool) {
    let result = if is_refused { "refused" } else { "told" };
    counter!(ASKS, "kind" => kind, "result" => result).increment(1);
}

pub(crate) fn refused(reason: &'static str) {
    counter!(REFUSALS, "reason" => reason).increment(1);
}

pub(crate) fn committed(took: Duration) {
    histogram!(COMMIT_SECONDS).record(took.as_secs_f64());
}

pub(crate) fn answered(asks: usize) {
    histogram!(BATCH_ASKS).record(u32::try_from(asks).unwrap_or(u32::MAX));
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

//! The metrics of this crate: names, help texts, and the functions that count.
//!
//! Label values come from a fixed set of words. They never contain a council, a key, a slot or an operation.

use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

use crate::{Counts, Outcome};

const ATTEMPTS: &str = "holdoff_council_attempts_total";
const REBUILDS: &str = "holdoff_council_rebuilds_total";
const LOST_SLOTS: &str = "holdoff_council_lost_slots_total";
const PREEMPTIONS: &str = "holdoff_council_preemptions_total";
const WAITS: &str = "holdoff_council_waits_total";
const WAITED: &str = "holdoff_council_waited_seconds_total";
const ASKED_AGAIN: &str = "holdoff_council_asked_again_total";
const SLOTS: &str = "holdoff_council_slots_total";
const SLOT_SECONDS: &str = "holdoff_council_slot_seconds";
const BATCH_SIZE: &str = "holdoff_council_batch_size";
const OPERATIONS: &str = "holdoff_council_operations_total";
const OPERATION_SECONDS: &str = "holdoff_council_operation_seconds";
const FORGED: &str = "holdoff_council_forged_total";
const REFUSED: &str = "holdoff_council_refused_total";
const COMPACTIONS: &str = "holdoff_council_compactions_total";
const HANDED_IN: &str = "holdoff_council_snapshots_handed_in_total";
const ASKS: &str = "holdoff_acceptor_asks_total";
const REFUSALS: &str = "holdoff_acceptor_refusals_total";
const COMMIT_SECONDS: &str = "holdoff_acceptor_commit_seconds";
const BATCH_ASKS: &str = "holdoff_acceptor_batch_asks";
const COUNCILS: &str = "holdoff_acceptor_councils";
const MEMORY_BYTES: &str = "holdoff_acceptor_memory_bytes";
const LOADS: &str = "holdoff_acceptor_loads_total";
const WATCHERS: &str = "holdoff_acceptor_watchers";
const STOPPED: &str = "holdoff_acceptor_stopped";

/// Registers the help text of every metric. Call it once, after the recorder is installed.
pub fn describe() {
    describe_counter!(ATTEMPTS, "ballots that devices have begun");
    describe_counter!(REBUILDS, "operations built again because somebody else was first");
    describe_counter!(LOST_SLOTS, "slots lost in which an own value was proposed");
    describe_counter!(PREEMPTIONS, "attempts ended by a higher ballot, by phase");
    describe_counter!(WAITS, "waits after somebody stood in the way");
    describe_counter!(WAITED, Unit::Seconds, "how long these were to be");
    describe_counter!(ASKED_AGAIN, "rounds of questions repeated because too few answered");
    describe_counter!(SLOTS, "slots carried out, by who put their value together");
    describe_histogram!(
        SLOT_SECONDS,
        Unit::Seconds,
        "from the first question about a slot to its own decision"
    );
    describe_histogram!(BATCH_SIZE, "operations in slots that this device put together");
    describe_counter!(OPERATIONS, "operations that ended, by outcome");
    describe_histogram!(OPERATION_SECONDS, Unit::Seconds, "how long operations took, by outcome");
    describe_counter!(FORGED, "values and snapshots reported that nobody has signed or agreed to");
    describe_counter!(REFUSED, "questions that acceptors refused");
    describe_counter!(COMPACTIONS, "compactions that devices wanted of their own accord");
    describe_counter!(HANDED_IN, "times that a device handed in a snapshot");
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

pub(crate) fn counted(before: &Counts, now: &Counts) {
    let grown = |count: fn(&Counts) -> u64| count(now).saturating_sub(count(before));
    let slots = grown(|counts| counts.slots);
    let own = grown(|counts| counts.own_slots);
    counter!(ATTEMPTS).increment(grown(|counts| counts.ballots));
    counter!(REBUILDS).increment(grown(|counts| counts.rebuilds));
    counter!(LOST_SLOTS).increment(grown(|counts| counts.lost_slots));
    counter!(PREEMPTIONS, "phase" => "preparing").increment(grown(|counts| counts.preempted_preparing));
    counter!(PREEMPTIONS, "phase" => "accepting").increment(grown(|counts| counts.preempted_accepting));
    counter!(WAITS).increment(grown(|counts| counts.waits));
    counter!(WAITED).increment(now.waited_us / 1_000_000 - before.waited_us / 1_000_000);
    counter!(ASKED_AGAIN).increment(grown(|counts| counts.asked_again));
    counter!(SLOTS, "author" => "self").increment(own);
    counter!(SLOTS, "author" => "other").increment(slots.saturating_sub(own));
    counter!(FORGED).increment(grown(|counts| counts.forged));
    counter!(REFUSED).increment(grown(|counts| counts.refused));
    counter!(COMPACTIONS).increment(grown(|counts| counts.compactions));
    counter!(HANDED_IN).increment(grown(|counts| counts.handed_in));
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

//! All metrics of this crate: their names, their help texts, and the functions that set them.
//!
//! Label values are the namespaces of this process's ledgers and constants of this crate, never a key, a node or a
//! transaction.

use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};

use crate::ledger::Outcome;
use crate::runtime::{LedgerStatus, Role};

const STOPPED: &str = "holdoff_ledger_stopped";
const LEADS: &str = "holdoff_ledger_is_leader";
const LEADER_CHANGES: &str = "holdoff_ledger_leader_changes_total";
const TENURE: &str = "holdoff_ledger_tenure_seconds";
const TERM_START: &str = "holdoff_ledger_term_start";
const TERM_ATTEMPT: &str = "holdoff_ledger_term_attempt";
const VOTERS: &str = "holdoff_ledger_voters";
const REACHABLE_MEMBERS: &str = "holdoff_ledger_reachable_members";
const INDEX: &str = "holdoff_ledger_index";
const CERTIFIED: &str = "holdoff_ledger_certified_index";
const LAG: &str = "holdoff_ledger_lag_entries";
const PENDING: &str = "holdoff_ledger_pending_transactions";
const TRANSACTIONS: &str = "holdoff_ledger_transactions_total";
const REROUTED: &str = "holdoff_ledger_rerouted_total";
const RESULT_TIMEOUTS: &str = "holdoff_ledger_result_timeouts_total";
const HISTORY_REQUESTS: &str = "holdoff_ledger_history_requests_total";
const HISTORY_SERVED: &str = "holdoff_ledger_history_served_total";
const DROPPED: &str = "holdoff_ledger_messages_dropped_total";
const CHUNKS_RECEIVED: &str = "holdoff_ledger_snapshot_chunks_received_total";
const REJECTED: &str = "holdoff_ledger_messages_rejected_total";
const DIVERGED: &str = "holdoff_ledger_diverged_total";
const GOSSIP_MESSAGES: &str = "holdoff_ledger_gossip_messages_total";
const GOSSIP_BYTES: &str = "holdoff_ledger_gossip_bytes_total";
const SUSPICIONS: &str = "holdoff_ledger_suspicions_total";

/// Registers the help text of every metric. Call it once, after the recorder is installed.
pub fn describe() {
    describe_gauge!(STOPPED, "1 if this node of a ledger has stopped after a disk failure or a divergence");
    describe_gauge!(LEADS, "1 if this node leads and accepts transactions");
    describe_counter!(LEADER_CHANGES, "changes of the leader that this node observed");
    describe_gauge!(TENURE, Unit::Seconds, "time since this node last observed a change of the leader");
    describe_gauge!(TERM_START, "first index of the latest term that this node has promised");
    describe_gauge!(TERM_ATTEMPT, "attempt number of the latest term that this node has promised");
    describe_gauge!(VOTERS, "members that vote");
    describe_gauge!(REACHABLE_MEMBERS, "members that have sent their status recently, including this node");
    describe_gauge!(INDEX, "index of the last entry that this node has applied");
    describe_gauge!(CERTIFIED, "highest index that a majority has signed");
    describe_gauge!(LAG, "entries that this node is behind the highest index that it knows of");
    describe_gauge!(PENDING, "pending transactions that were submitted at this node");
    describe_counter!(TRANSACTIONS, "submissions at this node that have ended, by outcome");
    describe_counter!(REROUTED, "transactions submitted at this node that were rerouted to another leader");
    describe_counter!(RESULT_TIMEOUTS, "submissions at this node whose deadline passed without a result");
    describe_counter!(HISTORY_REQUESTS, "requests for missing history that this node sent");
    describe_counter!(
        HISTORY_SERVED,
        "histories that this node sent, and whole states that it offered, to requesting nodes"
    );
    describe_counter!(CHUNKS_RECEIVED, "chunks of snapshots that this node received and stored");
    describe_counter!(
        DROPPED,
        "messages dropped because the queue of their ledger was full: in (from a peer), out (to a peer)"
    );
    describe_counter!(REJECTED, "messages of other nodes that were rejected, by reason");
    describe_counter!(
        DIVERGED,
        "times that a peer had another hash at the same index: 0 unless a node is faulty"
    );
    describe_counter!(GOSSIP_MESSAGES, "gossip messages sent");
    describe_counter!(
        GOSSIP_BYTES,
        Unit::Bytes,
        "bytes of gossip messages sent, without the overhead of the link"
    );
    describe_counter!(SUSPICIONS, "times that this node began to suspect the leader");
}

/// Counts a transaction that was submitted at this node and has ended.
pub(crate) fn ended<A>(namespace: &str, outcome: &Outcome<A>) {
    let outcome = match outcome {
        Outcome::Committed { .. } => "committed",
        Outcome::Failed { .. } => "failed",
        Outcome::NoQuorum => "no_quorum",
        Outcome::Unknown { .. } => "unknown",
        Outcome::Overtaken { .. } => "overtaken",
        Outcome::Expired { .. } => "expired",
        Outcome::TooMany => "too_many",
    };
    counter!(TRANSACTIONS, "namespace" => namespace.to_owned(), "outcome" => outcome).increment(1);
}

/// Counts a message that was dropped because the queue of its ledger was full.
pub(crate) fn dropped(namespace: &str, direction: &'static str) {
    counter!(DROPPED, "namespace" => namespace.to_owned(), "direction" => direction).increment(1);
}

/// Records that a node has stopped.
pub fn stopped(namespace: &str) {
    gauge!(STOPPED, "namespace" => namespace.to_owned()).set(1.0);
}

/// Sets all gauges and counters from a node's status, before an exporter reads them.
#[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
pub fn set(status: &LedgerStatus) {
    let namespace = || status.namespace.clone();
    let reachable = status.members.iter().filter(|member| member.is_reachable).count();
    let voters = status.members.iter().filter(|member| member.votes).count();
    let heads = status.members.iter().filter_map(|member| member.head);
    let highest = heads.map(|head| head.index.0).max().unwrap_or(0);
    let index = status.head.index.0;
    let is_leader = f64::from(u8::from(status.role == Role::Leader));
    let (start, attempt) = status.term;
    gauge!(STOPPED, "namespace" => namespace()).set(0.0);
    gauge!(LEADS, "namespace" => namespace()).set(is_leader);
    gauge!(TENURE, "namespace" => namespace()).set(status.tenure.as_secs_f64());
    gauge!(TERM_START, "namespace" => namespace()).set(start.0 as f64);
    gauge!(TERM_ATTEMPT, "namespace" => namespace()).set(attempt as f64);
    gauge!(VOTERS, "namespace" => namespace()).set(voters as f64);
    gauge!(REACHABLE_MEMBERS, "namespace" => namespace()).set(reachable as f64);
    gauge!(INDEX, "namespace" => namespace()).set(index as f64);
    gauge!(CERTIFIED, "namespace" => namespace()).set(status.certified.0 as f64);
    gauge!(LAG, "namespace" => namespace()).set(highest.saturating_sub(index) as f64);
    gauge!(PENDING, "namespace" => namespace()).set(status.pending as f64);
    let (counts, core, hint) = (status.counts, status.core, status.hint);
    counter!(LEADER_CHANGES, "namespace" => namespace()).absolute(core.leader_changes);
    counter!(REROUTED, "namespace" => namespace()).absolute(core.rerouted);
    counter!(RESULT_TIMEOUTS, "namespace" => namespace()).absolute(core.late);
    counter!(HISTORY_REQUESTS, "namespace" => namespace()).absolute(core.fetches);
    counter!(HISTORY_SERVED, "namespace" => namespace()).absolute(core.served + core.states_served);
    counter!(CHUNKS_RECEIVED, "namespace" => namespace()).absolute(core.chunks);
    for (reason, count) in [
        ("unknown_sender", counts.unknown_senders),
        ("malformed", counts.malformed),
        ("forged_gossip", hint.forged),
        ("forged_signature", core.forged_signatures),
        ("forged_certificate", core.forged_certificates),
        ("tampered_history", core.refused),
    ] {
        counter!(REJECTED, "namespace" => namespace(), "reason" => reason).absolute(count);
    }
    counter!(DIVERGED, "namespace" => namespace()).absolute(counts.diverged);
    counter!(GOSSIP_MESSAGES, "namespace" => namespace()).absolute(counts.gossip_messages);
    counter!(GOSSIP_BYTES, "namespace" => namespace()).absolute(counts.gossip_bytes);
    counter!(SUSPICIONS, "namespace" => namespace()).absolute(hint.suspected);
}

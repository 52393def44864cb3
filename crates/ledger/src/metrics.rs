//! All metrics of this crate: their names, their help texts, and the functions that set them.
//!
//! Label values are the namespaces of this process's ledgers and constants of this crate, never a key, a node or a
//! transaction.

use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};

use crate::ledger::Outcome;
use crate::runtime::{Role, Status};

const STOPPED: &str = "holdoff_ledger_stopped";
const LEADS: &str = "holdoff_ledger_is_leader";
const LEADER_CHANGES: &str = "holdoff_ledger_leader_changes_total";
const TENURE: &str = "holdoff_ledger_tenure_seconds";
const TERM_START: &str = "holdoff_ledger_term_start";
const TERM_ATTEMPT: &str = "holdoff_ledger_term_attempt";
const VOTERS: &str = "holdoff_ledger_voters";
const MEMBERS_HERE: &str = "holdoff_ledger_members_here";
const INDEX: &str = "holdoff_ledger_index";
const CERTIFIED: &str = "holdoff_ledger_certified_index";
const LAG: &str = "holdoff_ledger_lag_entries";
const PENDING: &str = "holdoff_ledger_pending_transactions";
const TRANSACTIONS: &str = "holdoff_ledger_transactions_total";
const REROUTED: &str = "holdoff_ledger_rerouted_total";
const RESULT_TIMEOUTS: &str = "holdoff_ledger_result_timeouts_total";
const HISTORY_REQUESTS: &str = "holdoff_ledger_history_requests_total";
const HISTORY_SERVED: &str = "holdoff_ledger_history_served_total";
const REFUSED: &str = "holdoff_ledger_messages_refused_total";
const DIVERGED: &str = "holdoff_ledger_diverged_total";
const GOSSIP_MESSAGES: &str = "holdoff_ledger_gossip_messages_total";
const GOSSIP_BYTES: &str = "holdoff_ledger_gossip_bytes_total";
const SUSPICIONS: &str = "holdoff_ledger_suspicions_total";

/// Registers the help text of every metric. Call it once, after the recorder is installed.
pub fn describe() {
    describe_gauge!(STOPPED, "1 if this node of a ledger has stopped: its disk has failed, or does not fit");
    describe_gauge!(LEADS, "1 if this node leads and takes transactions");
    describe_counter!(LEADER_CHANGES, "times that somebody else came to lead, as this node saw it");
    describe_gauge!(TENURE, Unit::Seconds, "for how long it has been so who leads");
    describe_gauge!(TERM_START, "the first index of the latest term that this node has promised");
    describe_gauge!(TERM_ATTEMPT, "the number of the attempt to lead that this term is");
    describe_gauge!(VOTERS, "members that vote");
    describe_gauge!(MEMBERS_HERE, "members that were heard of lately, this node included");
    describe_gauge!(INDEX, "the last entry that this node has applied");
    describe_gauge!(CERTIFIED, "up to where a majority has signed the history");
    describe_gauge!(LAG, "entries that this node is behind the highest index it has heard of");
    describe_gauge!(PENDING, "transactions submitted here that have not ended");
    describe_counter!(TRANSACTIONS, "transactions submitted here that have ended, by outcome");
    describe_counter!(REROUTED, "transactions submitted here that went to another leader");
    describe_counter!(RESULT_TIMEOUTS, "transactions submitted here whose result did not come in time");
    describe_counter!(HISTORY_REQUESTS, "times that this node asked others for entries it did not have");
    describe_counter!(HISTORY_SERVED, "times that this node sent entries or a whole state to whoever asked");
    describe_counter!(REFUSED, "messages of other nodes that were not listened to, by reason");
    describe_counter!(
        DIVERGED,
        "times that another node had another hash at the same index: never, if all is well"
    );
    describe_counter!(GOSSIP_MESSAGES, "messages of gossip sent");
    describe_counter!(GOSSIP_BYTES, Unit::Bytes, "bytes of gossip sent, without the link's own");
    describe_counter!(SUSPICIONS, "times that this node suspected a leader by its heartbeat");
}

/// Counts a transaction that was submitted at this node and has ended.
pub(crate) fn ended<A>(namespace: &str, outcome: &Outcome<A>) {
    let outcome = match outcome {
        Outcome::Committed { .. } => "committed",
        Outcome::Failed { .. } => "failed",
        Outcome::NoQuorum => "no_quorum",
        Outcome::Unknown => "unknown",
        Outcome::TooMany => "too_many",
    };
    counter!(TRANSACTIONS, "namespace" => namespace.to_owned(), "outcome" => outcome).increment(1);
}

/// Records that a node has stopped.
pub fn stopped(namespace: &str) {
    gauge!(STOPPED, "namespace" => namespace.to_owned()).set(1.0);
}

/// Sets all gauges and counters from a node's status, before an exporter reads them.
#[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
pub fn set(status: &Status) {
    let namespace = || status.namespace.clone();
    let here = status.members.iter().filter(|member| member.is_here).count();
    let voters = status.members.iter().filter(|member| member.votes).count();
    let heads = status.members.iter().filter_map(|member| member.head);
    let highest = heads.map(|head| head.index.0).max().unwrap_or(0);
    let index = status.head.index.0;
    let is_leader = f64::from(u8::from(status.role == Role::Leads));
    let (start, attempt) = status.term;
    gauge!(STOPPED, "namespace" => namespace()).set(0.0);
    gauge!(LEADS, "namespace" => namespace()).set(is_leader);
    gauge!(TENURE, "namespace" => namespace()).set(status.tenure.as_secs_f64());
    gauge!(TERM_START, "namespace" => namespace()).set(start.0 as f64);
    gauge!(TERM_ATTEMPT, "namespace" => namespace()).set(attempt as f64);
    gauge!(VOTERS, "namespace" => namespace()).set(voters as f64);
    gauge!(MEMBERS_HERE, "namespace" => namespace()).set(here as f64);
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
    for (reason, count) in [
        ("stranger", counts.strangers),
        ("unreadable", counts.garbage),
        ("forged_gossip", hint.forged),
        ("forged_seal", core.forged_seals),
        ("forged_certificate", core.forged_certificates),
        ("tampered_history", core.refused),
    ] {
        counter!(REFUSED, "namespace" => namespace(), "reason" => reason).absolute(count);
    }
    counter!(DIVERGED, "namespace" => namespace()).absolute(counts.diverged);
    counter!(GOSSIP_MESSAGES, "namespace" => namespace()).absolute(counts.gossip_messages);
    counter!(GOSSIP_BYTES, "namespace" => namespace()).absolute(counts.gossip_bytes);
    counter!(SUSPICIONS, "namespace" => namespace()).absolute(hint.suspected);
}

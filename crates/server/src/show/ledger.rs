//! The JSON representation of ledgers.

mod entry;
mod value;

use holdoff_ledger::Term;
use holdoff_ledger::runtime::{MemberStatus, Role, Status};
use serde::Serialize;
use utoipa::ToSchema;

use crate::ledgers::Ledgers;

pub(crate) use entry::{ShownEntry, diff_lines, goal_text, is_own};
pub(crate) use value::{ShownCommand, ShownResult, ShownValue, read_key};

/// How this daemon's node of a ledger is doing. Before it has joined, little of that is known.
#[derive(Serialize, ToSchema)]
#[schema(as = Ledger)]
pub(crate) struct ShownLedger {
    namespace: String,
    /// What others need to know of this node, as one word to paste: its key and its address.
    contact: String,
    /// By which key this node goes.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    key: String,
    /// `leads`, `follows`, `looks` for a leader, `learns` without a vote, or is `joining`.
    role: &'static str,
    /// Which ledger it is.
    #[schema(pattern = "^[0-9a-f]{32}$")]
    ledger: Option<String>,
    /// Who this node is: the key and the life of its storage.
    #[schema(pattern = "^[0-9a-f]{32}$")]
    node: Option<String>,
    leader: Option<ShownLeader>,
    term: Option<ShownTerm>,
    /// For how long it has been so who leads.
    tenure_ms: Option<u64>,
    /// The last entry that it has applied.
    index: Option<u64>,
    /// The hash of that entry, and of all before it.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    hash: Option<String>,
    /// The hash of what the entries have made.
    state_hash: Option<String>,
    /// Up to where a majority has signed the history.
    certified: Option<u64>,
    /// Transactions submitted here that have not ended.
    pending: Option<usize>,
    members: Vec<ShownMember>,
    counts: Option<ShownCounts>,
}

/// Who leads.
#[derive(Serialize, ToSchema)]
#[schema(as = LedgerLeader)]
struct ShownLeader {
    #[schema(pattern = "^[0-9a-f]{64}$")]
    key: String,
    name: Option<String>,
}

/// A term: the first index it is for, and the number of the attempt.
#[derive(Serialize, ToSchema)]
#[schema(as = LedgerTerm)]
pub(crate) struct ShownTerm {
    pub(crate) start: u64,
    pub(crate) attempt: u64,
}

/// A member, and how it is doing as far as is known here.
#[derive(Serialize, ToSchema)]
#[schema(as = LedgerMember)]
struct ShownMember {
    #[schema(pattern = "^[0-9a-f]{64}$")]
    key: String,
    name: String,
    address: String,
    /// Whether it votes now.
    votes: bool,
    /// Whether it shall.
    shall_vote: bool,
    /// Whether it was heard of lately.
    here: bool,
    /// How far it has come, if it has said so lately.
    index: Option<u64>,
    /// How far that is behind the highest index that was heard of.
    lag: Option<u64>,
}

/// What a node has seen since it was started.
#[derive(Serialize, ToSchema)]
#[schema(as = LedgerCounts)]
struct ShownCounts {
    /// Times that somebody else came to lead.
    leader_changes: u64,
    /// Transactions that went to another leader.
    rerouted: u64,
    /// Messages from whom nobody knows.
    strangers: u64,
    /// Messages that cannot be read.
    unreadable: u64,
    /// Hearsay that is not signed as it must be.
    forged_gossip: u64,
    /// Seals that their voter has not signed.
    forged_seals: u64,
    /// Certificates that no majority has signed.
    forged_certificates: u64,
    /// Histories and states that were tampered with, or that nothing here leads to.
    tampered: u64,
    /// Transactions whose result did not come in time.
    late: u64,
    /// Times that others were asked for what is missing here.
    fetches: u64,
    /// Histories and states sent to others.
    served: u64,
    /// Times that another node had another hash at the same index.
    diverged: u64,
    /// Times that the leader was suspected.
    suspected: u64,
    gossip_messages: u64,
    gossip_bytes: u64,
}

impl ShownLedger {
    /// Returns the representation of a ledger that this node has joined.
    pub(crate) fn joined(ledgers: &Ledgers, status: &Status) -> Self {
        let name = |key| status.members.iter().find(|member| member.key == key);
        let (start, attempt) = status.term;
        let highest = highest(status);
        Self {
            role: role(status.role),
            ledger: Some(status.ledger.to_string()),
            node: Some(format!("{:032x}", status.node.0)),
            leader: status.leader.map(|key| ShownLeader {
                key: key.to_string(),
                name: name(key).map(|member| member.member.name.clone()),
            }),
            term: Some(ShownTerm { start: start.0, attempt }),
            tenure_ms: Some(u64::try_from(status.tenure.as_millis()).unwrap_or(u64::MAX)),
            index: Some(status.head.index.0),
            hash: Some(status.head.hash.to_string()),
            state_hash: Some(status.state_hash.to_string()),
            certified: Some(status.certified.0),
            pending: Some(status.pending),
            members: status.members.iter().map(|member| show_member(member, highest)).collect(),
            counts: Some(counts(status)),
            ..Self::joining(ledgers, &status.namespace)
        }
    }

    /// Returns the representation of a ledger to which no member has admitted this node yet.
    pub(crate) fn joining(ledgers: &Ledgers, namespace: &str) -> Self {
        let contact = ledgers.contact();
        Self {
            namespace: namespace.to_owned(),
            contact: contact.to_string(),
            key: contact.key.to_string(),
            role: "joining",
            ledger: None,
            node: None,
            leader: None,
            term: None,
            tenure_ms: None,
            index: None,
            hash: None,
            state_hash: None,
            certified: None,
            pending: None,
            members: Vec::new(),
            counts: None,
        }
    }
}

/// Returns the highest index that the node knows of.
pub(crate) fn highest(status: &Status) -> u64 {
    let heads = status.members.iter().filter_map(|member| member.head);
    heads.map(|head| head.index.0).max().unwrap_or(0).max(status.head.index.0)
}

/// Returns the word for a node's role.
pub(crate) const fn role(role: Role) -> &'static str {
    match role {
        Role::Leads => "leads",
        Role::Follows => "follows",
        Role::Learns => "learns",
        _ => "looks",
    }
}

fn show_member(status: &MemberStatus, highest: u64) -> ShownMember {
    let index = status.head.map(|head| head.index.0);
    ShownMember {
        key: status.key.to_string(),
        name: status.member.name.clone(),
        address: status.member.address.clone(),
        votes: status.votes,
        shall_vote: status.member.votes,
        here: status.is_here,
        index,
        lag: index.map(|index| highest.saturating_sub(index)),
    }
}

fn counts(status: &Status) -> ShownCounts {
    let (counts, core, hint) = (status.counts, status.core, status.hint);
    ShownCounts {
        leader_changes: core.leader_changes,
        rerouted: core.rerouted,
        strangers: counts.strangers,
        unreadable: counts.garbage,
        forged_gossip: hint.forged,
        forged_seals: core.forged_seals,
        forged_certificates: core.forged_certificates,
        tampered: core.refused,
        late: core.late,
        fetches: core.fetches,
        served: core.served + core.states_served,
        diverged: counts.diverged,
        suspected: hint.suspected,
        gossip_messages: counts.gossip_messages,
        gossip_bytes: counts.gossip_bytes,
    }
}

impl From<Term> for ShownTerm {
    fn from(term: Term) -> Self {
        Self { start: term.start().0, attempt: term.attempt() }
    }
}

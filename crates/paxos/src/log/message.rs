//! The messages between nodes of the log.

use serde::{Deserialize, Serialize};

use super::{Entry, Mark, Snapshot, Term};
use crate::{NodeId, Slot};

/// A message from a node to another. Every answer names the term that it answers.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Message<V, S> {
    /// A candidate asks for a vote, or for a pre-vote.
    Vote(Candidacy),
    /// A voter's answer.
    Voted {
        /// Whether the answer belongs to a pre-vote.
        trial: bool,
        /// The candidate's term.
        term: Term,
        /// Whether the voter grants the vote.
        granted: bool,
        /// The voter's promise for the configuration of that term.
        promised: Term,
    },
    /// A leader sends entries. Without entries the message is a heartbeat.
    Append(Append<V>),
    /// A leader sends its snapshot, because it has compacted the entries that the follower needs.
    Install {
        /// The leader's term.
        term: Term,
        /// The last slot of the log that the leader began with.
        inherited: Slot,
        /// The state up to the slot where the leader's entries begin.
        snapshot: Snapshot<S>,
    },
    /// The sender has the leader's log up to this slot.
    Matched {
        /// The leader's term.
        term: Term,
        /// The last slot that is equal in both logs.
        slot: Slot,
    },
    /// The sender cannot append the entries that it was sent.
    Behind {
        /// The leader's term.
        term: Term,
        /// The slot after which the leader continues.
        have: Slot,
    },
    /// The sender has promised a later term.
    Refused {
        /// The leader's term.
        term: Term,
        /// The promise that caused the refusal.
        promised: Term,
    },
    /// The leader of this term has stepped down in favour of another node (leadership transfer; Raft's `TimeoutNow`).
    Lead {
        /// The term that has ended.
        term: Term,
        /// The target, which has the leader's whole log.
        to: NodeId,
    },
}

/// A candidate's request for a vote or a pre-vote.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Candidacy {
    /// Whether it is a pre-vote: a pre-vote binds no voter.
    pub trial: bool,
    /// The term that the candidate would lead in.
    pub term: Term,
    /// The term in which the candidate last accepted its log as a leader's.
    pub accepted: Term,
    /// The candidate's last slot.
    pub last: Slot,
}

/// A leader's append request.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Append<V> {
    /// The leader's term.
    pub term: Term,
    /// The entry that precedes the first entry sent.
    pub before: Mark,
    /// The next entry.
    pub entry: Option<Entry<V>>,
    /// The entries after it, for a follower that is behind.
    pub more: Vec<Entry<V>>,
    /// The last slot of the log that the leader began with. A follower that has the log up to it has accepted it in
    /// this term.
    pub inherited: Slot,
    /// The last slot that is known to be decided.
    pub decided: Slot,
}

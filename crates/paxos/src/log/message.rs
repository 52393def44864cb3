//! What nodes say to each other.

use serde::{Deserialize, Serialize};

use super::{Entry, Mark, Snapshot, Term};
use crate::{NodeId, Slot};

/// What one node says to another. Every answer names the term it answers.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Message<V, S> {
    /// Somebody asks to lead.
    Vote(Candidacy),
    /// The answer to it.
    Voted {
        /// Whether it was only asked for.
        trial: bool,
        /// The term that was asked for.
        term: Term,
        /// Whether it may lead, as far as this voter is concerned.
        granted: bool,
        /// What this voter has promised.
        promised: Term,
    },
    /// A leader sends what comes next, or nothing: then it only shows that it lives.
    Append(Append<V>),
    /// A leader sends what it no longer has as entries.
    Install {
        /// The leader's.
        term: Term,
        /// How long the log was that the leader began with.
        inherited: Slot,
        /// All up to where its entries begin.
        snapshot: Snapshot<S>,
    },
    /// Whoever says it has the leader's log up to there.
    Matched {
        /// The leader's.
        term: Term,
        /// The last slot that is the same.
        slot: Slot,
    },
    /// Whoever says it cannot take what was sent.
    Behind {
        /// The leader's.
        term: Term,
        /// Where to try again: what comes after this slot.
        have: Slot,
    },
    /// A later term was promised.
    Refused {
        /// The leader's.
        term: Term,
        /// The one in its way.
        promised: Term,
    },
    /// Whoever led in this term leads no longer: another is to lead.
    Lead {
        /// The term that is over.
        term: Term,
        /// Who has all of its log.
        to: NodeId,
    },
}

/// Somebody asks to lead.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Candidacy {
    /// Whether it only asks what the answer would be: then nobody promises anything.
    pub trial: bool,
    /// The term to lead in.
    pub term: Term,
    /// The term its log was last accepted in.
    pub accepted: Term,
    /// Its last slot.
    pub last: Slot,
}

/// What a leader sends.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Append<V> {
    /// The leader's.
    pub term: Term,
    /// What its first entry stands on.
    pub before: Mark,
    /// The next entry.
    pub entry: Option<Entry<V>>,
    /// Those after it, for one who is behind.
    pub more: Vec<Entry<V>>,
    /// How long the log was that the leader began with: whoever has all of that has accepted it in this term.
    pub inherited: Slot,
    /// All up to here is decided.
    pub decided: Slot,
}

//! Single-decree Paxos: one decision among several proposers.
//!
//! A proposer asks the acceptors to [promise](PromiseReply) its ballot. If they report accepted values, the proposer
//! proposes the value of the highest ballot, else its own. It then asks the acceptors to [accept](AcceptReply) that
//! value. Once a majority has accepted the same ballot, the value is chosen and never changes. Every reply echoes the
//! ballot it answers, and every refusal carries the promised ballot that caused it.

mod acceptor;
mod learner;
#[cfg(test)]
mod model;
mod proposer;

use serde::{Deserialize, Serialize};

pub use acceptor::{Acceptor, Record};
pub use learner::Learner;
pub use proposer::{AcceptOutcome, Accepting, BallotRecord, Free, PrepareOutcome, Preparing};

use crate::Ballot;

/// A value together with the ballot under which an acceptor has accepted it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Vote<V> {
    /// The ballot under which the value was proposed.
    pub ballot: Ballot,
    /// The proposed value.
    pub value: V,
}

/// An acceptor's reply to a prepare request (phase 1b).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum PromiseReply<V> {
    /// The acceptor promises to accept nothing below this ballot.
    Promise {
        /// The ballot of the request.
        ballot: Ballot,
        /// The value that the acceptor has accepted under the highest ballot so far.
        accepted: Option<Vote<V>>,
    },
    /// The acceptor has promised a higher ballot.
    Nack {
        /// The ballot of the request.
        ballot: Ballot,
        /// The promised ballot that caused the refusal.
        promised: Ballot,
    },
}

/// An acceptor's reply to an accept request (phase 2b).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum AcceptReply {
    /// The acceptor has accepted the value under this ballot.
    Accepted {
        /// The ballot of the request.
        ballot: Ballot,
    },
    /// The acceptor has promised a higher ballot.
    Nack {
        /// The ballot of the request.
        ballot: Ballot,
        /// The promised ballot that caused the refusal.
        promised: Ballot,
    },
}

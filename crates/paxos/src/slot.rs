//! One decision among many who propose.
//!
//! A proposer asks the acceptors to [promise](PromiseReply) its ballot, proposes what they have accepted
//! already or else its own, and has it [accepted](AcceptReply). Once a majority has accepted the same
//! ballot, its value is chosen, for ever. Every reply echoes the ballot it answers, and every refusal
//! says which ballot stands in the way.

mod acceptor;
mod learner;
#[cfg(test)]
mod model;
mod proposer;

use serde::{Deserialize, Serialize};

pub use acceptor::{Acceptor, Record};
pub use learner::Learner;
pub use proposer::{Accepting, Attempt, Free, Prepared, Preparing, Voted};

use crate::Ballot;

/// A value under the ballot that an acceptor has accepted it with.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Vote<V> {
    /// The attempt it was proposed in.
    pub ballot: Ballot,
    /// What was proposed.
    pub value: V,
}

/// What an acceptor answers to a prepare.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum PromiseReply<V> {
    /// Nothing below this ballot will be accepted any more.
    Promise {
        /// The ballot that was asked for.
        ballot: Ballot,
        /// What was accepted before, under the highest ballot so far.
        accepted: Option<Vote<V>>,
    },
    /// A higher ballot was promised.
    Nack {
        /// The ballot that was asked for.
        ballot: Ballot,
        /// The one in its way.
        promised: Ballot,
    },
}

/// What an acceptor answers to an accept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum AcceptReply {
    /// The value is accepted under this ballot.
    Accepted {
        /// The ballot that was asked for.
        ballot: Ballot,
    },
    /// A higher ballot was promised.
    Nack {
        /// The ballot that was asked for.
        ballot: Ballot,
        /// The one in its way.
        promised: Ballot,
    },
}

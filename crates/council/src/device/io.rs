//! What goes into a device, and what comes out.

use bytes::Bytes;
use holdoff_paxos::slot::Attempt;
use holdoff_paxos::{NodeId, Slot};
use serde::{Deserialize, Serialize};

use super::Reserve;
use crate::machine::Invalid;
use crate::{Applied, Ask, OperationId, PublicKey, Snapshot, Tell, Value};

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::large_enum_variant, reason = "an input is made, passed on and taken apart at once")]
pub enum Input<W> {
    /// Somebody wants something. Under an id that is known already it changes nothing.
    Submit {
        /// Which operation.
        id: OperationId,
        /// What it wants.
        wish: W,
        /// What to post once it is committed.
        letter: Option<Letter>,
        /// When whoever wants it stops waiting.
        deadline_us: u64,
    },
    /// An acceptor has said something.
    Told {
        /// Who.
        from: NodeId,
        /// What.
        tell: Tell,
    },
    /// Time has passed.
    Tick,
}

/// What to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Ask an acceptor something. It may get lost; what matters is asked again.
    Ask {
        /// Whom.
        to: NodeId,
        /// What.
        ask: Ask,
    },
    /// This became of an operation. After [`Outcome::Unknown`] the truth may follow.
    Ended {
        /// Which one.
        id: OperationId,
        /// What.
        outcome: Outcome,
    },
    /// A slot was carried out.
    Applied(Applied),
    /// The state was taken over as a whole, for its slots are gone.
    Installed(Slot),
}

/// What became of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It was carried out in this slot.
    Committed(Slot),
    /// It was not, and never will be.
    NotCommitted(NotCommitted),
    /// Time was up and it may still happen. It is being taken back; what becomes of that is told later.
    Unknown,
    /// It cannot be.
    Invalid(Invalid),
}

/// Why an operation was not carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotCommitted {
    /// What it wants is so already.
    #[error("it is so already")]
    AlreadySo,
    /// Time was up.
    #[error("time was up before it could be decided")]
    Deadline,
    /// What it wants was so for a while, for which it was taken back, and is not any more.
    #[error("it was so for a while, and was taken back for that: submit it again under another id")]
    Overtaken,
    /// So many operations are under way that no more is taken.
    #[error("as many operations are under way as may be: wait for one to end")]
    TooMany,
}

/// A message for somebody, to be posted when the operation it belongs to is committed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Letter {
    /// For whom.
    pub to: PublicKey,
    /// What.
    pub message: Bytes,
}

/// What a device must have on disk before anybody hears of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Record<W> {
    /// An operation is under way.
    Submitted {
        /// Which one.
        id: OperationId,
        /// What it wants.
        wish: W,
        /// What to post once it is committed.
        letter: Option<Letter>,
        /// The slot it was born after.
        born: Slot,
    },
    /// An operation is under way no more.
    Ended {
        /// Which one.
        id: OperationId,
    },
    /// A ballot is used, and must not be again.
    Attempt(Attempt),
    /// These may be used from now on, and must not be by a later life.
    Reserved(Reserve),
    /// What a slot has decided.
    Applied {
        /// The slot.
        slot: Slot,
        /// What.
        value: Value,
    },
    /// The state after a slot: stands for what was applied up to it.
    Snapshot(Snapshot),
    /// A letter is to be posted.
    Letter {
        /// The operation it belongs to.
        id: OperationId,
        /// What, and to whom.
        letter: Letter,
    },
    /// A letter is posted.
    Posted {
        /// The operation it belongs to.
        id: OperationId,
    },
}

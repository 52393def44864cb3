//! The inputs and outputs of a device.

use bytes::Bytes;
use holdoff_paxos::slot::Attempt;
use holdoff_paxos::{NodeId, Slot};
use serde::{Deserialize, Serialize};

use super::Reserve;
use crate::machine::Invalid;
use crate::{Applied, Ask, OperationId, PublicKey, Snapshot, Tell, Value};

/// An event for a device.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::large_enum_variant, reason = "an input is made, passed on and taken apart at once")]
pub enum Input<W> {
    /// The caller requests a change. If the id is already known, no second operation is created.
    Submit {
        /// The id of the operation.
        id: OperationId,
        /// The requested change.
        wish: W,
        /// The mail message to post after the operation is committed.
        letter: Option<Letter>,
        /// The time at which the caller stops waiting.
        deadline_us: u64,
    },
    /// An acceptor has sent a message.
    Told {
        /// The acceptor.
        from: NodeId,
        /// The message.
        tell: Tell,
    },
    /// Time has passed.
    Tick,
}

/// An action for the caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Send a request to an acceptor. The request may get lost; the device repeats the requests that matter.
    Ask {
        /// The acceptor.
        to: NodeId,
        /// The request.
        ask: Ask,
    },
    /// An operation has ended with this outcome. After [`Outcome::Unknown`] the final outcome may follow.
    Ended {
        /// The operation.
        id: OperationId,
        /// The outcome.
        outcome: Outcome,
    },
    /// The device has applied a slot.
    Applied(Applied),
    /// The device has installed a snapshot up to this slot, because the acceptors have deleted the slots before.
    Installed(Slot),
}

/// The outcome of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The operation was applied in this slot.
    Committed(Slot),
    /// The operation was not applied and never will be.
    NotCommitted(NotCommitted),
    /// The deadline has passed, and the operation may still be applied. The device withdraws it; the final outcome
    /// follows later.
    Unknown,
    /// The operation is impossible.
    Invalid(Invalid),
}

/// The reason for which an operation was not applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotCommitted {
    /// The requested state already holds.
    #[error("it is so already")]
    AlreadySo,
    /// The deadline has passed.
    #[error("time was up before it could be decided")]
    Deadline,
    /// The requested state held for a while, so the device withdrew the operation. The state does not hold any
    /// more.
    #[error("it was so for a while, and was taken back for that: submit it again under another id")]
    Overtaken,
    /// The maximum number of operations is pending, so the device accepts no more.
    #[error("as many operations are under way as may be: wait for one to end")]
    TooMany,
}

/// A mail message, to be posted when its operation is committed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Letter {
    /// The addressee.
    pub to: PublicKey,
    /// The content.
    pub message: Bytes,
}

/// A record that a device must have on disk before another node sees its effect.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Record<W> {
    /// An operation is pending.
    Submitted {
        /// The operation.
        id: OperationId,
        /// The requested change.
        wish: W,
        /// The mail message to post after the operation is committed.
        letter: Option<Letter>,
        /// The last slot that the device had applied when the operation was submitted.
        born: Slot,
    },
    /// An operation is not pending any more.
    Ended {
        /// The operation.
        id: OperationId,
    },
    /// A ballot is in use and must not be used again.
    Attempt(Attempt),
    /// This process may use these attempts from now on. A later process must not use them.
    Reserved(Reserve),
    /// A slot is decided.
    Applied {
        /// The slot.
        slot: Slot,
        /// The decided value.
        value: Value,
    },
    /// The state after a slot. It replaces the records of all slots up to it.
    Snapshot(Snapshot),
    /// A mail message is to be posted.
    Letter {
        /// The operation of the message.
        id: OperationId,
        /// The addressee and the content.
        letter: Letter,
    },
    /// A mail message is posted.
    Posted {
        /// The operation of the message.
        id: OperationId,
    },
}

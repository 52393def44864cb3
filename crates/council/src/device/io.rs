//! The inputs, outputs, records and counters of a device.

use bytes::Bytes;
use holdoff_paxos::slot::BallotRecord;
use holdoff_paxos::{NodeId, Slot};
use serde::{Deserialize, Serialize};

use super::AttemptReserve;
use crate::machine::InvalidOperation;
use crate::{AcceptorReply, AcceptorRequest, Applied, CouncilSnapshot, OperationId, PublicKey, SlotValue};

/// An event for a device.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::large_enum_variant, reason = "an input is created, passed on and matched at once")]
pub enum Input<W> {
    /// The caller requests a change. If the id is already known, no second operation is created.
    Submit {
        /// The id of the operation.
        id: OperationId,
        /// The requested change.
        change: W,
        /// The mail message to post after the operation is committed.
        mail: Option<Mail>,
        /// The time at which the caller stops waiting.
        deadline_us: u64,
    },
    /// An acceptor has sent a message.
    Reply {
        /// The acceptor.
        from: NodeId,
        /// The message.
        reply: AcceptorReply,
    },
    /// Records of the device are on disk. The device has requested this input with
    /// [`return_when_stored`](holdoff_driver::Step::return_when_stored).
    Stored(StoredMark),
    /// Time has passed.
    Tick,
}

/// The records of a device that are on disk, as far as the device waits for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoredMark {
    pub(super) reserve: AttemptReserve,
    /// The number of submitted operations.
    pub(super) submissions: u64,
    /// The number of operations that the device has ended by itself.
    pub(super) ends: u64,
}

/// An action for the caller.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::large_enum_variant, reason = "an output is created, passed on and matched at once")]
pub enum Output {
    /// Send a request to an acceptor. The request may get lost; the device repeats the requests that matter.
    Send {
        /// The acceptor.
        to: NodeId,
        /// The request.
        request: AcceptorRequest,
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
    Invalid(InvalidOperation),
}

/// The reason for which an operation was not applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotCommitted {
    /// The requested state already holds.
    #[error("the requested state already holds")]
    AlreadySatisfied,
    /// The deadline has passed.
    #[error("the deadline passed before the operation was decided")]
    Deadline,
    /// The requested state held for a while, so the device withdrew the operation. The state does not hold any
    /// more.
    #[error(
        "the requested state held for a while and the operation was withdrawn: submit it again under another id"
    )]
    Overtaken,
    /// The maximum number of operations is pending, so the device accepts no more.
    #[error("the device has reached its limit of pending operations: retry when one has ended")]
    TooMany,
}

/// A mail message, to be posted when its operation is committed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Mail {
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
        change: W,
        /// The mail message to post after the operation is committed.
        mail: Option<Mail>,
        /// The last slot that the device had applied when the operation was submitted.
        birth_slot: Slot,
    },
    /// An operation is not pending any more.
    Ended {
        /// The operation.
        id: OperationId,
    },
    /// A ballot is in use and must not be used again.
    Attempt(BallotRecord),
    /// This process may use these attempts from now on. A later process must not use them.
    Reserved(AttemptReserve),
    /// A slot is decided.
    Applied {
        /// The slot.
        slot: Slot,
        /// The decided value.
        value: SlotValue,
    },
    /// The state after a slot. It replaces the records of all slots up to it.
    Snapshot(CouncilSnapshot),
    /// A mail message is to be posted.
    Mail {
        /// The operation of the message.
        id: OperationId,
        /// The addressee and the content.
        mail: Mail,
    },
    /// A mail message is posted.
    Posted {
        /// The operation of the message.
        id: OperationId,
    },
}

/// The counters of a device since its start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DeviceCounters {
    /// Ballots started.
    pub ballots: u64,
    /// Operations rebuilt for another slot, because the value of another device has won the slot.
    pub rebuilds: u64,
    /// Slots for which this device proposed a value of its own and lost.
    pub lost_slots: u64,
    /// Attempts that a higher ballot ended before the device proposed a value.
    pub preempted_preparing: u64,
    /// Attempts that a higher ballot ended after the device proposed a value.
    pub preempted_accepting: u64,
    /// Waits started.
    pub waits: u64,
    /// The sum of the planned waiting times in microseconds. A wait that ends early counts in full.
    pub waited_us: u64,
    /// Requests repeated because too few acceptors answered.
    pub retransmissions: u64,
    /// Slots applied.
    pub slots: u64,
    /// Slots whose value this device created.
    pub own_slots: u64,
    /// Operations that ended as unknown.
    pub unknown: u64,
    /// Reports of acceptors that are unsigned or impossible.
    pub forged: u64,
    /// Requests that acceptors refused.
    pub refused: u64,
    /// Compactions that this device started by itself.
    pub compactions: u64,
    /// Snapshots sent to acceptors, counted once for each occasion.
    pub snapshots_sent: u64,
}

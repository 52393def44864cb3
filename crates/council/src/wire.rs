//! The requests of devices and the answers of acceptors.

use bytes::Bytes;
use holdoff_paxos::slot::{AcceptReply, PromiseReply, Vote};
use holdoff_paxos::{Ballot, Slot};
use serde::{Deserialize, Serialize};

use crate::{CouncilId, Digest, Operation, OperationId, PublicKey, Value, Verifier};

/// A request of a device to an acceptor, for one council.
///
/// A device may repeat any request: the answer is the same, or a newer one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Ask {
    /// Requests a promise of this ballot in this slot, and announces operations to other devices. Answer:
    /// [`Tell::Promise`].
    Prepare {
        /// The slot.
        slot: Slot,
        /// The ballot, which must belong to the sender.
        ballot: Ballot,
        /// Operations that any member may have decided.
        announce: Vec<Operation>,
    },
    /// Requests a vote for this value, and optionally a promise for the next slot. Answer: [`Tell::Accepted`].
    Accept {
        /// The slot.
        slot: Slot,
        /// The ballot, which must belong to the sender.
        ballot: Ballot,
        /// The value.
        value: Value,
        /// The ballot to promise in the next slot, which saves a lone writer one of two round trips.
        next: Option<Ballot>,
    },
    /// Reports a chosen value. The acceptor stores it, so that other devices can learn it. There is no answer.
    Decided {
        /// The slot.
        slot: Slot,
        /// The ballot under which the value was chosen, and the value.
        vote: Vote<Value>,
    },
    /// Requests the votes after this slot, the last slot of the snapshot, and a push for each vote from now on.
    /// Answer: [`Tell::History`], unless these votes are only in the snapshot, and [`Tell::Compacted`]. Only
    /// devices send this request, so the acceptor deletes the mail of the sender.
    Fetch {
        /// The last slot that the sender already knows.
        after: Slot,
    },
    /// Requests the acceptor's snapshot. Answer: [`Tell::Snapshot`].
    Snapshot,
    /// Asks the acceptor to store this snapshot instead of the slots up to it. Answer: [`Tell::Compacted`].
    Compact {
        /// The snapshot.
        snapshot: Snapshot,
    },
    /// Asks the acceptor to store a mail message for an addressee that may not be a member yet. Answer:
    /// [`Tell::Posted`].
    Post {
        /// The operation of the message.
        id: OperationId,
        /// The addressee.
        to: PublicKey,
        /// The content.
        message: Bytes,
    },
    /// Requests the mail of the sender. Answer: [`Tell::Mail`].
    Collect,
}

impl Ask {
    /// Returns the name of the request in metrics.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Prepare { .. } => "prepare",
            Self::Accept { .. } => "accept",
            Self::Decided { .. } => "decided",
            Self::Fetch { .. } => "fetch",
            Self::Snapshot => "snapshot",
            Self::Compact { .. } => "compact",
            Self::Post { .. } => "post",
            Self::Collect => "collect",
        }
    }

    /// Returns whether the request only reads. The acceptor stores nothing new for it, and at most deletes mail.
    pub const fn only_reads(&self) -> bool {
        matches!(self, Self::Fetch { .. } | Self::Snapshot | Self::Collect)
    }

    /// Returns whether the value in the request is signed by its author. A request without a value counts as
    /// signed.
    pub fn is_signed(&self, council: CouncilId, verifier: &dyn Verifier) -> bool {
        match self {
            Self::Accept { slot, value, .. } | Self::Decided { slot, vote: Vote { value, .. } } => {
                value.is_signed(council, *slot, verifier)
            }
            _ => true,
        }
    }
}

/// A message of an acceptor to a device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Tell {
    /// The answer to [`Ask::Prepare`].
    Promise {
        /// The slot.
        slot: Slot,
        /// The promise or the refusal.
        reply: PromiseReply<Value>,
        /// Announced operations of other devices.
        announced: Vec<Operation>,
        /// The highest slot in which this acceptor has accepted a value.
        latest: Slot,
    },
    /// The answer to [`Ask::Accept`].
    Accepted {
        /// The slot.
        slot: Slot,
        /// The vote or the refusal.
        reply: AcceptReply,
        /// The promise or the refusal for the next slot, if that was requested.
        next: Option<PromiseReply<Value>>,
        /// Announced operations of other devices.
        announced: Vec<Operation>,
    },
    /// The acceptor has accepted a value, on the request of any device. It pushes this message to all watchers.
    Voted {
        /// The slot.
        slot: Slot,
        /// The ballot and the value.
        vote: Vote<Value>,
    },
    /// The answer to [`Ask::Fetch`]: a part of the acceptor's votes, in the order of the slots. The device fetches
    /// the rest after the last one.
    History {
        /// The votes.
        votes: Vec<(Slot, Vote<Value>)>,
        /// The highest slot in which this acceptor has accepted a value.
        latest: Slot,
    },
    /// The last slot of the snapshot. The acceptor has the slots up to it only in the snapshot. Slot 0 if there is
    /// no snapshot.
    Compacted {
        /// The last slot that the snapshot covers.
        slot: Slot,
        /// The hash of the snapshot.
        digest: Digest,
    },
    /// The answer to [`Ask::Snapshot`].
    Snapshot(Snapshot),
    /// The answer to [`Ask::Post`]: the acceptor has stored the message.
    Posted {
        /// The operation of the message.
        id: OperationId,
    },
    /// The answer to [`Ask::Collect`]. The acceptor keeps the mail until the addressee connects as a device. An
    /// addressee that is killed earlier can collect it again.
    Mail(Vec<(OperationId, Bytes)>),
    /// The acceptor has refused the request, and nothing has changed.
    Refused {
        /// The slot, if the request had one.
        slot: Option<Slot>,
        /// The reason.
        why: Refusal,
    },
}

/// The state after a slot. It replaces all slots up to it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    /// The last slot that the snapshot covers.
    pub slot: Slot,
    /// The encoded state.
    pub bytes: Bytes,
}

impl Snapshot {
    /// The maximum size of a snapshot.
    pub const MAX_BYTES: usize = 512 * 1024;
    /// The maximum size of the machine's part. The rest is for the remembered outcomes of operations, whose number
    /// is limited.
    pub const MACHINE_BYTES: usize = Self::MAX_BYTES - 256 - crate::state::REMEMBERED * 28;

    /// Returns the hash of the snapshot.
    pub fn digest(&self) -> Digest {
        Digest::of(&[b"holdoff snapshot", &self.slot.0.to_le_bytes(), &self.bytes])
    }
}

/// The reason for which an acceptor refuses a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The ballot belongs to another node or to another slot.
    #[error("the ballot is not one of yours for this slot")]
    ForeignBallot,
    /// The value is not signed by its author.
    #[error("the value is not signed by its author for this slot")]
    Unsigned,
    /// The value, the mail message or the snapshot is too large.
    #[error("it is larger than acceptors keep")]
    TooLarge,
    /// The council has reached its quota at this acceptor.
    #[error("the council has as much here as it may: compact it")]
    Full,
    /// This acceptor has reached its limit of councils.
    #[error("this acceptor has as many councils as it may: ask its operator, or another one")]
    TooManyCouncils,
    /// The sender may not take part at this acceptor.
    #[error("your key is not on this acceptor's list: ask its operator")]
    Stranger,
}

impl Refusal {
    /// Returns the name of the reason in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ForeignBallot => "foreign_ballot",
            Self::Unsigned => "unsigned",
            Self::TooLarge => "too_large",
            Self::Full => "full",
            Self::TooManyCouncils => "too_many_councils",
            Self::Stranger => "stranger",
        }
    }
}

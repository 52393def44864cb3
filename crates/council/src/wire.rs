//! The requests of devices and the replies of acceptors, and their envelopes on a link.
//!
//! The link authenticates the key of the peer. Every message carries the incarnation of the sender's store, in both
//! directions. A link reconnects after it was lost, and the peer that answers then may have another store.

use bytes::Bytes;
use holdoff_net::{EncodedSize, LinkRole};
use holdoff_paxos::slot::{AcceptReply, PromiseReply, Vote};
use holdoff_paxos::{Ballot, Slot};
use serde::{Deserialize, Serialize};

use crate::{
    Closing, CouncilId, Digest, Endorsement, Founding, OperationId, PublicKey, SignedAccess, SignedOperation,
    SlotValue, Verifier,
};

/// A request of a device to an acceptor, for one council.
///
/// A device may repeat any request: the answer is the same, or a newer one. An acceptor answers [`Introduce`](Self::Introduce),
/// [`Access`](Self::Access) and [`Collect`](Self::Collect) to any client, and all other requests to members only.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum AcceptorRequest {
    /// Introduces a council that the acceptor does not know. Reply: [`AcceptorReply::Report`].
    Introduce {
        /// The founding record.
        founding: Founding,
        /// The slot of a change of the members, or the slot before the first one.
        access: Slot,
        /// The members after that slot.
        members: Vec<PublicKey>,
        /// The decided changes after that slot.
        changes: Vec<SignedAccess>,
    },
    /// Reports decided changes of the members that the acceptor may have missed, in order. Reply: [`AcceptorReply::Report`].
    Access {
        /// The changes.
        changes: Vec<SignedAccess>,
    },
    /// Requests a promise of this ballot in this slot, and announces operations to other devices. Reply:
    /// [`AcceptorReply::Promise`].
    Prepare {
        /// The slot.
        slot: Slot,
        /// The ballot, which must belong to the sender.
        ballot: Ballot,
        /// Operations that any member may have decided.
        announce: Vec<SignedOperation>,
    },
    /// Requests a vote for this value, and optionally a promise for the next slot. Reply: [`AcceptorReply::Accepted`].
    Accept {
        /// The slot.
        slot: Slot,
        /// The ballot, which must belong to the sender.
        ballot: Ballot,
        /// The value.
        value: SlotValue,
        /// The ballot to promise in the next slot, which saves a lone writer one of two round trips.
        next: Option<Ballot>,
    },
    /// Reports a chosen value. The acceptor stores it, so that other devices can learn it. There is no answer.
    Decided {
        /// The slot.
        slot: Slot,
        /// The ballot under which the value was chosen, and the value.
        vote: Vote<SlotValue>,
    },
    /// Requests the votes after this slot, the last slot of the snapshot, and a push for each vote from now on.
    /// Reply: [`AcceptorReply::History`], unless these votes are only in the snapshot, and [`AcceptorReply::Report`]. Only
    /// devices send this request, so the acceptor deletes the mail of the sender. A former member gets the votes up to the
    /// slot that removed it.
    Fetch {
        /// The last slot that the sender already knows.
        after: Slot,
    },
    /// Requests the acceptor's snapshot. Reply: [`AcceptorReply::Snapshot`].
    Snapshot {
        /// The hash of a snapshot that the acceptor may return although no majority of the members has endorsed it.
        offered: Option<Digest>,
    },
    /// Offers a snapshot. The acceptor keeps it in memory until a majority of the members has endorsed it, and then stores
    /// it instead of the slots up to it. Reply: [`AcceptorReply::Report`].
    Compact {
        /// The snapshot.
        snapshot: CouncilSnapshot,
        /// Its endorsements, if another acceptor has reported them.
        certificate: Vec<Endorsement>,
    },
    /// Endorses a snapshot. An endorsement replaces the previous one of the same member. Reply: [`AcceptorReply::Report`].
    Endorse(Endorsement),
    /// Closes the council at this acceptor, because a member recovers it elsewhere. From then on the acceptor accepts no
    /// value, and still reports those that it has. Reply: [`AcceptorReply::Closed`].
    Close(Closing),
    /// Asks the acceptor to store a mail message for an addressee that may not be a member yet. Reply:
    /// [`AcceptorReply::Posted`].
    Post {
        /// The operation of the message.
        id: OperationId,
        /// The addressee.
        to: PublicKey,
        /// The content.
        message: Bytes,
    },
    /// Requests the mail of the sender. Reply: [`AcceptorReply::Mail`].
    Collect,
}

impl AcceptorRequest {
    /// Returns the name of the request in metrics.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Introduce { .. } => "introduce",
            Self::Access { .. } => "access",
            Self::Prepare { .. } => "prepare",
            Self::Accept { .. } => "accept",
            Self::Decided { .. } => "decided",
            Self::Fetch { .. } => "fetch",
            Self::Snapshot { .. } => "snapshot",
            Self::Compact { .. } => "compact",
            Self::Endorse(_) => "endorse",
            Self::Close(_) => "close",
            Self::Post { .. } => "post",
            Self::Collect => "collect",
        }
    }

    /// Returns whether the value, the changes or the endorsements in the request are signed by their authors.
    pub fn is_signed(&self, council: CouncilId, verifier: &dyn Verifier) -> bool {
        match self {
            Self::Accept { slot, value, .. } | Self::Decided { slot, vote: Vote { value, .. } } => {
                value.is_signed(council, *slot, verifier)
            }
            Self::Access { changes } | Self::Introduce { changes, .. } => {
                changes.iter().all(|decided| decided.is_signed(council, verifier))
            }
            Self::Compact { certificate, .. } => {
                certificate.iter().all(|endorsement| endorsement.is_signed(council, verifier))
            }
            Self::Endorse(endorsement) => endorsement.is_signed(council, verifier),
            Self::Close(closing) => closing.is_signed(council, verifier),
            _ => true,
        }
    }
}

/// A message of an acceptor to a device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum AcceptorReply {
    /// The answer to [`AcceptorRequest::Prepare`].
    Promise {
        /// The slot.
        slot: Slot,
        /// The promise or the refusal.
        reply: PromiseReply<SlotValue>,
        /// Announced operations of other devices.
        announced: Vec<SignedOperation>,
        /// The highest slot in which this acceptor has accepted a value.
        latest: Slot,
    },
    /// The answer to [`AcceptorRequest::Accept`].
    Accepted {
        /// The slot.
        slot: Slot,
        /// The vote or the refusal.
        reply: AcceptReply,
        /// The promise or the refusal for the next slot, if that was requested.
        next: Option<PromiseReply<SlotValue>>,
        /// Announced operations of other devices.
        announced: Vec<SignedOperation>,
    },
    /// The acceptor has accepted a value, on the request of any device. It pushes this message to all watchers.
    Voted {
        /// The slot.
        slot: Slot,
        /// The ballot and the value.
        vote: Vote<SlotValue>,
    },
    /// The answer to [`AcceptorRequest::Fetch`]: a part of the acceptor's votes, in the order of the slots. The device fetches
    /// the rest after the last one.
    History {
        /// The votes.
        votes: Vec<(Slot, Vote<SlotValue>)>,
        /// The highest slot in which this acceptor has accepted a value.
        latest: Slot,
    },
    /// What the acceptor has.
    Report(AcceptorReport),
    /// The answer to [`AcceptorRequest::Snapshot`].
    Snapshot {
        /// The snapshot.
        snapshot: CouncilSnapshot,
        /// The endorsements of a majority of the members after its slot. Empty if the snapshot is only offered.
        certificate: Vec<Endorsement>,
    },
    /// The answer to [`AcceptorRequest::Post`]: the acceptor has stored the message.
    Posted {
        /// The operation of the message.
        id: OperationId,
    },
    /// The answer to [`AcceptorRequest::Collect`]. The acceptor keeps the mail until the addressee connects as a device. An
    /// addressee that is killed earlier can collect it again.
    Mail(Vec<(OperationId, Bytes)>),
    /// A member has closed the council. Follows each reply to [`AcceptorRequest::Fetch`].
    Closed(Closing),
    /// The acceptor has refused the request, and nothing has changed.
    Refused {
        /// The slot, if the request had one.
        slot: Option<Slot>,
        /// The reason.
        why: RequestRefusal,
    },
}

/// What an acceptor has of a council, beside the votes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct AcceptorReport {
    /// The last slot that the snapshot covers. The acceptor has the slots up to it only in the snapshot. Slot 0 if there is
    /// no snapshot.
    pub floor: Slot,
    /// The hash of the snapshot.
    pub digest: Digest,
    /// The hash of a snapshot that the acceptor has in memory, until a majority of the members has endorsed it.
    pub offered: Digest,
    /// The hash of the snapshot that the requester has endorsed since.
    pub endorsed: Digest,
    /// The slot of the last change of the members that the acceptor knows.
    pub access: Slot,
}

/// The state after a slot. It replaces all slots up to it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CouncilSnapshot {
    /// The last slot that the snapshot covers.
    pub slot: Slot,
    /// The encoded state.
    pub bytes: Bytes,
}

impl CouncilSnapshot {
    /// The maximum size of a snapshot.
    pub const MAX_BYTES: usize = 576 * 1024;
    /// The maximum size of the machine's part. The rest is for the remembered outcomes of operations and the remembered
    /// changes of the members, whose numbers are limited.
    pub const MACHINE_BYTES: usize = Self::MAX_BYTES - crate::state::OVERHEAD - crate::state::REMEMBERED * 28;

    /// Returns the hash of the snapshot.
    pub fn digest(&self) -> Digest {
        Digest::of(&[b"holdoff snapshot", &self.slot.0.to_le_bytes(), &self.bytes])
    }
}

/// The reason for which an acceptor refuses a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum RequestRefusal {
    /// The acceptor does not know the council. A member introduces it.
    #[error("this acceptor does not know the council")]
    UnknownCouncil,
    /// The founding record does not belong to this council, or the sender is not among the introduced members.
    #[error("the founding record does not belong to this council, or the sender is not a member")]
    ForeignFounding,
    /// The sender is not a member, as far as this acceptor knows.
    #[error("this acceptor does not know the sender as a member of the council{}", removed(*removed_in))]
    NotMember {
        /// The slot of the last change of the members that the acceptor knows.
        access: Slot,
        /// The slot that removed the sender, if the acceptor remembers it.
        removed_in: Option<Slot>,
    },
    /// The changes of the members do not continue those that the acceptor knows.
    #[error("the changes of the members do not continue those that this acceptor knows")]
    ForeignAccess,
    /// A member has closed the council, because it has lost a majority of its acceptors.
    #[error("a member has closed the council and recovers it under another id: ask its operator for the id")]
    Closed,
    /// The ballot belongs to another node or to another slot.
    #[error("the ballot does not belong to the sender and this slot")]
    ForeignBallot,
    /// The attempt is too far above the highest attempt that the acceptor has seen in the slot.
    #[error(
        "the attempt is too far above {highest}, the highest attempt in the slot: raise it in smaller steps"
    )]
    AttemptTooHigh {
        /// The highest attempt that the acceptor has seen in the slot.
        highest: u64,
    },
    /// The value is not signed by its author.
    #[error("the value is not signed by its author for this slot")]
    Unsigned,
    /// The value, the mail message or the snapshot is too large.
    #[error("the value, mail message or snapshot exceeds the size limit")]
    TooLarge,
    /// The council has reached its quota at this acceptor.
    #[error("the council has reached its quota at this acceptor: compact it")]
    Full,
    /// This acceptor has reached its limit of councils.
    #[error(
        "this acceptor has reached its limit of councils: use another acceptor, or let its operator raise `max_councils`"
    )]
    TooManyCouncils,
    /// This acceptor has stopped after a failure of its disk.
    #[error("this acceptor has stopped: use another acceptor")]
    Stopped,
}

impl RequestRefusal {
    /// Returns the name of the reason in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::UnknownCouncil => "unknown_council",
            Self::ForeignFounding => "foreign_founding",
            Self::NotMember { .. } => "not_member",
            Self::ForeignAccess => "foreign_access",
            Self::Closed => "closed",
            Self::ForeignBallot => "foreign_ballot",
            Self::AttemptTooHigh { .. } => "attempt_too_high",
            Self::Unsigned => "unsigned",
            Self::TooLarge => "too_large",
            Self::Full => "full",
            Self::TooManyCouncils => "too_many_councils",
            Self::Stopped => "stopped",
        }
    }
}

fn removed(slot: Option<Slot>) -> String {
    slot.map_or_else(String::new, |slot| format!(": slot {slot} has removed it"))
}

/// The role that devices have on links to acceptors.
pub const ROLE: LinkRole = LinkRole::new("council device", 2..=2);

/// A message of a device, merged with others into one frame. The acceptor pushes its replies as [`LinkPush`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LinkMessage {
    /// The incarnation of the device's store. The device's id in ballots is derived from it and the key.
    pub incarnation: u64,
    /// The council.
    pub council: CouncilId,
    /// The number that the replies repeat.
    pub tag: u64,
    /// The request.
    pub request: AcceptorRequest,
}

impl EncodedSize for LinkMessage {
    fn encoded_bytes(&self) -> usize {
        /// More than the size of the fixed fields of a request, and of those of an operation or a change.
        const FIXED: usize = 512;
        let encoded_changes = |changes: &[SignedAccess]| -> usize {
            changes.iter().map(|decided| FIXED + decided.change.keys() * size_of::<PublicKey>()).sum()
        };
        let variable = match &self.request {
            AcceptorRequest::Prepare { announce, .. } => {
                announce.iter().map(|operation| FIXED + operation.body.len()).sum()
            }
            AcceptorRequest::Accept { value, .. } => value.len(),
            AcceptorRequest::Decided { vote, .. } => vote.value.len(),
            AcceptorRequest::Compact { snapshot, certificate } => {
                snapshot.bytes.len() + certificate.len() * size_of::<Endorsement>()
            }
            AcceptorRequest::Post { message, .. } => message.len(),
            AcceptorRequest::Introduce { founding, members, changes, .. } => {
                (founding.members.len() + members.len()) * size_of::<PublicKey>() + encoded_changes(changes)
            }
            AcceptorRequest::Access { changes } => encoded_changes(changes),
            AcceptorRequest::Fetch { .. }
            | AcceptorRequest::Snapshot { .. }
            | AcceptorRequest::Endorse(_)
            | AcceptorRequest::Close(_)
            | AcceptorRequest::Collect => 0,
        };
        FIXED + variable
    }
}

/// A call of a device that waits for the reply: of one that joins, or that looks for an acceptor.
#[expect(clippy::large_enum_variant, reason = "a call is encoded at once")]
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum LinkRequest {
    /// Asks for the incarnation of the acceptor. The [`LinkReply`] contains nothing else.
    Identify,
    /// A request for a council.
    Council {
        /// The incarnation of the device's store. The device's id in ballots is derived from it and the key.
        incarnation: u64,
        /// The council.
        council: CouncilId,
        /// The request.
        request: AcceptorRequest,
    },
}

/// A response of an acceptor to a call.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LinkReply {
    /// The incarnation of the acceptor's store. The acceptor's id in configurations is derived from it and the key.
    pub incarnation: u64,
    /// The answers: one, except for [`AcceptorRequest::Decided`], which has none, and [`AcceptorRequest::Fetch`], which has two if there is
    /// a history to report.
    pub replies: Vec<AcceptorReply>,
}

/// A message that an acceptor pushes: a reply to a [`LinkMessage`], or news for a watcher.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LinkPush {
    /// The incarnation of the acceptor's store.
    pub incarnation: u64,
    /// The council.
    pub council: CouncilId,
    /// The tag of the answered message. 0 if the push answers none.
    pub tag: u64,
    /// The message.
    pub reply: AcceptorReply,
}

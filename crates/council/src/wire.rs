//! What devices and acceptors say to each other.

use bytes::Bytes;
use holdoff_paxos::slot::{AcceptReply, PromiseReply, Vote};
use holdoff_paxos::{Ballot, Slot};
use serde::{Deserialize, Serialize};

use crate::{CouncilId, Digest, Operation, OperationId, PublicKey, Value, Verifier};

/// What a device asks an acceptor, about one council.
///
/// Every question may be asked again: the answer is the same, or newer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Ask {
    /// Promise this ballot in this slot, and tell others what I want: [`Tell::Promise`].
    Prepare {
        /// The slot.
        slot: Slot,
        /// The ballot, of whoever asks.
        ballot: Ballot,
        /// Operations that anybody may have decided.
        announce: Vec<Operation>,
    },
    /// Accept this value, and promise me the next slot with it: [`Tell::Accepted`].
    Accept {
        /// The slot.
        slot: Slot,
        /// The ballot, of whoever asks.
        ballot: Ballot,
        /// What to accept.
        value: Value,
        /// The ballot to promise in the next slot, which saves a lone writer half of its way.
        next: Option<Ballot>,
    },
    /// This was chosen; keep it, so that others can learn it. Nothing is answered.
    Decided {
        /// The slot.
        slot: Slot,
        /// The ballot it was chosen under, and what.
        vote: Vote<Value>,
    },
    /// Tell me from now on what you accept, how far your snapshot reaches, and what you have accepted after this slot:
    /// [`Tell::History`], unless that is only in the snapshot, and [`Tell::Compacted`]. Only devices ask this: what was
    /// posted to the asker is not needed any more.
    Fetch {
        /// The last slot that is known already.
        after: Slot,
    },
    /// Give me your snapshot: [`Tell::Snapshot`].
    Snapshot,
    /// Keep this snapshot instead of the slots up to it: [`Tell::Compacted`].
    Compact {
        /// What to keep.
        snapshot: Snapshot,
    },
    /// Keep a message for somebody who may not be a member yet: [`Tell::Posted`].
    Post {
        /// The operation that it belongs to.
        id: OperationId,
        /// For whom.
        to: PublicKey,
        /// What.
        message: Bytes,
    },
    /// Give me what was posted to me: [`Tell::Mail`].
    Collect,
}

impl Ask {
    /// The word for it in metrics.
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

    /// Whether it only wants to know something: nothing is stored for it that was not there, and only letters go.
    pub const fn only_reads(&self) -> bool {
        matches!(self, Self::Fetch { .. } | Self::Snapshot | Self::Collect)
    }

    /// Whether whoever proposes or reports a value has it signed by its author; if there is one.
    pub fn is_signed(&self, council: CouncilId, verifier: &dyn Verifier) -> bool {
        match self {
            Self::Accept { slot, value, .. } | Self::Decided { slot, vote: Vote { value, .. } } => {
                value.is_signed(council, *slot, verifier)
            }
            _ => true,
        }
    }
}

/// What an acceptor tells a device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Tell {
    /// To [`Ask::Prepare`].
    Promise {
        /// The slot.
        slot: Slot,
        /// Whether it is promised.
        reply: PromiseReply<Value>,
        /// What others want.
        announced: Vec<Operation>,
        /// The highest slot in which anything was accepted here.
        latest: Slot,
    },
    /// To [`Ask::Accept`].
    Accepted {
        /// The slot.
        slot: Slot,
        /// Whether it is accepted.
        reply: AcceptReply,
        /// Whether the next slot is promised, if that was asked for.
        next: Option<PromiseReply<Value>>,
        /// What others want.
        announced: Vec<Operation>,
    },
    /// Something was accepted here, whoever asked for it. Pushed to everybody who watches.
    Voted {
        /// The slot.
        slot: Slot,
        /// The ballot, and what.
        vote: Vote<Value>,
    },
    /// To [`Ask::Fetch`]: some of what was accepted here, in the order of the slots. Ask on after the last.
    History {
        /// What was accepted.
        votes: Vec<(Slot, Vote<Value>)>,
        /// The highest slot in which anything was accepted here.
        latest: Slot,
    },
    /// So far reaches the snapshot, and what is asked for up to there is only in it. Slot 0 if there is none.
    Compacted {
        /// The last slot in it.
        slot: Slot,
        /// What it hashes to.
        digest: Digest,
    },
    /// To [`Ask::Snapshot`].
    Snapshot(Snapshot),
    /// To [`Ask::Post`]: it is kept.
    Posted {
        /// The operation that it belongs to.
        id: OperationId,
    },
    /// To [`Ask::Collect`]. It is kept until the asker comes as a device: whoever is killed before can read again.
    Mail(Vec<(OperationId, Bytes)>),
    /// It is not done, and nothing has changed.
    Refused {
        /// The slot, if it was about one.
        slot: Option<Slot>,
        /// Why.
        why: Refusal,
    },
}

/// The state after a slot, which stands for everything up to it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    /// The last slot in it.
    pub slot: Slot,
    /// The state.
    pub bytes: Bytes,
}

impl Snapshot {
    /// The largest snapshot.
    pub const MAX_BYTES: usize = 512 * 1024;
    /// As much of it is the machine's; the rest is for the ends of operations, of which so many are remembered.
    pub const MACHINE_BYTES: usize = Self::MAX_BYTES - 256 - crate::state::REMEMBERED * 28;

    /// What it hashes to.
    pub fn digest(&self) -> Digest {
        Digest::of(&[b"holdoff snapshot", &self.slot.0.to_le_bytes(), &self.bytes])
    }
}

/// Why an acceptor does not do what it is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The ballot is somebody else's, or is not one of this slot.
    #[error("the ballot is not one of yours for this slot")]
    ForeignBallot,
    /// The value is not signed by who it says.
    #[error("the value is not signed by its author for this slot")]
    Unsigned,
    /// The value, the message or the snapshot is too large.
    #[error("it is larger than acceptors keep")]
    TooLarge,
    /// The council has as much here as it may.
    #[error("the council has as much here as it may: compact it")]
    Full,
    /// This acceptor has as many councils as it may.
    #[error("this acceptor has as many councils as it may: ask its operator, or another one")]
    TooManyCouncils,
    /// The asker may not take part here.
    #[error("your key is not on this acceptor's list: ask its operator")]
    Stranger,
}

impl Refusal {
    /// The word for it in metrics.
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

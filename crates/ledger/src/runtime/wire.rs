//! The wire format between nodes: packets, many in one frame, and requests with replies. A long message is sent in
//! fragments.

use bytes::Bytes;
use holdoff_net::{EncodedSize, LinkRole, PublicKey};
use holdoff_paxos::Slot;
use serde::{Deserialize, Serialize};

use super::error::{DescribeRejection, TransferRejection};
use super::identity::LedgerId;
use super::roster::LedgerMember;
use super::store::LedgerInfo;
use crate::entry::{Hash, ReplicatedMachine};
use crate::ledger::{Consistency, Refounding};
use crate::state::State;

/// The role of nodes on links to each other.
pub(super) const ROLE: LinkRole = LinkRole::new("ledger node", 3..=3);
/// The maximum size of a frame, in bytes.
pub(super) const MAX_FRAME_BYTES: usize = 512 * 1024;
/// The size of a fragment, in bytes. A longer message is split.
pub(super) const FRAGMENT_BYTES: usize = 256 * 1024;
/// The maximum size of a reassembled message, in bytes: the entries of a full window, and one longest entry.
pub(super) const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// An envelope for one ledger, and its sender.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Packet {
    pub(super) ledger: LedgerId,
    /// The incarnation of the sender's storage. Together with the key that the link proves it identifies the sender.
    pub(super) incarnation: u64,
    pub(super) envelope: Envelope,
}

/// The content of a packet.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) enum Envelope {
    /// The sender is reachable at this address, and has applied the entries up to this head, after this recovery of the
    /// ledger.
    PeerStatus { address: String, head: AppliedHead, refounded: Option<Refounding> },
    /// An encoded message of the core.
    Message(Bytes),
    /// A fragment of a message, in order, and whether it is the last one.
    Fragment(bool, Bytes),
    /// An encoded message of gossip.
    Gossip(Bytes),
}

/// The last entry that a node has applied.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct AppliedHead {
    /// The index of the entry.
    pub index: Slot,
    /// The hash of the entry, which covers all earlier entries.
    pub hash: Hash,
}

impl AppliedHead {
    pub(super) fn of<M: ReplicatedMachine>(state: &State<M>) -> Self {
        Self { index: state.index(), hash: state.hash() }
    }
}

impl Envelope {
    /// Returns the approximate size, in bytes.
    pub(super) fn bytes(&self) -> usize {
        const OVERHEAD: usize = 64;
        match self {
            Self::PeerStatus { address, .. } => OVERHEAD + address.len(),
            Self::Message(bytes) | Self::Fragment(_, bytes) | Self::Gossip(bytes) => OVERHEAD + bytes.len(),
        }
    }
}

impl EncodedSize for Packet {
    fn encoded_bytes(&self) -> usize {
        self.envelope.bytes()
    }
}

impl Packet {
    /// Splits a long message into packets that fit into frames.
    pub(super) fn split(self) -> Vec<Self> {
        let Self { ledger, incarnation, envelope } = self;
        match envelope {
            Envelope::Message(bytes) if bytes.len() > FRAGMENT_BYTES => {
                let count = bytes.len().div_ceil(FRAGMENT_BYTES);
                let fragment = |at: usize| {
                    let end = ((at + 1) * FRAGMENT_BYTES).min(bytes.len());
                    Envelope::Fragment(at + 1 == count, bytes.slice(at * FRAGMENT_BYTES..end))
                };
                (0..count).map(|at| Self { ledger, incarnation, envelope: fragment(at) }).collect()
            }
            envelope => vec![Self { ledger, incarnation, envelope }],
        }
    }
}

/// The fragments of one message that have arrived.
#[derive(Default, Debug)]
pub(super) struct Reassembly(Vec<u8>);

impl Reassembly {
    /// Adds a fragment. Returns the message after its last fragment. Drops a message that exceeds the maximum size.
    pub(super) fn add(&mut self, is_last: bool, fragment: &[u8]) -> Option<Bytes> {
        if self.0.len().saturating_add(fragment.len()) > MAX_MESSAGE_BYTES {
            self.0 = Vec::new();
            return None;
        }
        self.0.extend(fragment);
        is_last.then(|| std::mem::take(&mut self.0).into())
    }
}

/// A request from a node to another.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Requests the id and the members of the ledger with this name.
    DescribeLedger(String),
    /// Requests a read from the leader.
    Read { ledger: LedgerId, goal: Bytes, consistency: Consistency },
    /// Requests a command from the leader.
    LeaderCommand { ledger: LedgerId, command: LeaderCommand },
}

/// A command that only the leader can execute.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum LeaderCommand {
    /// Transfer leadership to this voter, or to the voter with the highest applied index.
    TransferLeadership(Option<PublicKey>),
}

/// The reply to a request.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// The ledger, the incarnation of the replying node's storage, and the members that it knows.
    Ledger { info: LedgerInfo, incarnation: u64, members: Vec<(PublicKey, LedgerMember)> },
    /// The index of the last entry that the answer includes, and the answer.
    Read(Slot, Bytes),
    /// The replying node does not lead. The named node may.
    NotLeader(Option<PublicKey>),
    /// The command is executed, for this node.
    Done(PublicKey),
    /// The leader has not transferred leadership.
    NotTransferred(TransferRejection),
    /// The replying node does not describe the ledger.
    NotDescribed(DescribeRejection),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(length: usize) -> Packet {
        let bytes = (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect::<Vec<_>>();
        Packet { ledger: LedgerId([1; 16]), incarnation: 2, envelope: Envelope::Message(bytes.into()) }
    }

    #[test]
    fn a_long_message_is_split_and_reassembled() {
        for length in [0, 1, FRAGMENT_BYTES, FRAGMENT_BYTES + 1, 3 * FRAGMENT_BYTES, 3 * FRAGMENT_BYTES + 7] {
            let whole = packet(length);
            let Envelope::Message(expected) = whole.envelope.clone() else { unreachable!() };
            let (mut reassembly, mut found) = (Reassembly::default(), None);
            for packet in whole.split() {
                assert!(packet.encoded_bytes() < MAX_FRAME_BYTES);
                assert!(found.is_none());
                found = match packet.envelope {
                    Envelope::Message(bytes) => Some(bytes),
                    Envelope::Fragment(is_last, bytes) => reassembly.add(is_last, &bytes),
                    other => unreachable!("{other:?}"),
                };
            }
            assert_eq!(found, Some(expected), "{length}");
        }
    }

    #[test]
    fn a_message_beyond_the_maximum_size_is_dropped() {
        let (mut reassembly, fragment) = (Reassembly::default(), vec![0; FRAGMENT_BYTES]);
        let most = MAX_MESSAGE_BYTES / FRAGMENT_BYTES;
        for _ in 0..=most {
            assert_eq!(reassembly.add(false, &fragment), None);
        }
        assert!(reassembly.0.is_empty());
    }
}

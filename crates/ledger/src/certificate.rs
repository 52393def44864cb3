//! Certificates: the proof that a history is the decided history.

use holdoff_paxos::log::Term;
use holdoff_paxos::{Configuration, MAX_ACCEPTORS, NodeId, Slot, Tally};
use serde::{Deserialize, Serialize};

use crate::entry::Hash;
use crate::machine::StateHash;

const HEAD: &str = "holdoff ledger v1: where a history has come to";

/// A signature in the format of the [`Notary`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HeadSignature(pub Vec<u8>);

/// Signs for this node and verifies the signatures of other nodes.
pub trait Notary {
    /// Returns this node's signature of an index and a hash.
    fn sign(&self, index: Slot, hash: Hash) -> HeadSignature;

    /// Returns true if `signature` is the signature of the voter `by` for this index and hash.
    fn is_signed(&self, by: NodeId, index: Slot, hash: Hash, signature: &HeadSignature) -> bool;
}

/// The position that a history has reached: the hash of its entries, and the facts that the next entry depends on.
///
/// All nodes have the same head at the same index.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Head {
    /// The index of the last entry.
    pub index: Slot,
    /// The hash of that entry, which covers all earlier entries.
    pub hash: Hash,
    /// The term of the leader that created that entry.
    pub term: Term,
    /// The first index that `voters` decide.
    pub start: Slot,
    /// The configuration that decides the next entry.
    pub voters: Configuration,
    /// The hash of the machine's state.
    pub machine: StateHash,
    /// The hash of the remembered transactions and their results.
    pub done: StateHash,
    /// The approximate size of the whole state, which limits what a node accepts as its content.
    pub bytes: u64,
    /// The size of all entries so far, in bytes, which determines when the nodes take snapshots.
    pub written: u64,
}

impl Head {
    /// Returns the hash that a voter signs together with the index, or `None` if the head cannot be encoded.
    pub fn digest(&self) -> Option<Hash> {
        let bytes = postcard::to_stdvec(self).ok()?;
        let mut hasher = blake3::Hasher::new_derive_key(HEAD);
        Some(Hash(*hasher.update(&bytes).finalize().as_bytes()))
    }
}

/// The signature share of one voter: the voter has learned that the history up to a head is decided.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SignatureShare {
    /// The head of the decided history.
    pub head: Head,
    /// The voter's signature of the head.
    pub signature: HeadSignature,
    /// The first index of the latest configuration whose configuration certificate this voter keeps.
    pub latest_configuration: Slot,
}

/// The signature shares of a majority of the voters: the history up to a head is decided.
///
/// A voter signs only after it has learned that the entry is decided. Each hash covers all earlier entries, so one
/// certificate proves every entry up to its index, and the state at that index.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Certificate {
    /// The head of the decided history.
    pub head: Head,
    /// The signers and their signatures.
    pub signatures: Vec<(NodeId, HeadSignature)>,
}

impl Certificate {
    /// Returns true if a majority of the voters in the head has signed the certificate.
    pub fn is_genuine(&self, notary: &impl Notary) -> bool {
        let Some(digest) = self.head.digest() else { return false };
        let signed = |(voter, signature): &(NodeId, HeadSignature)| {
            notary.is_signed(*voter, self.head.index, digest, signature)
        };
        // A receiver may count the signers against other voters, so one invalid signature invalidates the certificate.
        self.signatures.len() <= MAX_ACCEPTORS && self.is_by_majority() && self.signatures.iter().all(signed)
    }

    /// Returns true if a majority of the voters in the head is among the signers. Does not verify the signatures.
    pub(crate) fn is_by_majority(&self) -> bool {
        self.by(&self.head.voters).is_quorum(&self.head.voters)
    }

    /// Returns true if at least half of `voters` are among the signers, so that the certificate can follow that
    /// configuration. Does not verify the signatures.
    ///
    /// A change adds or removes one voter, so a majority of the new voters contains at least half of the previous
    /// ones. As long as fewer than half of the voters lie, one of these is honest, and an honest voter signs only
    /// decided entries.
    pub(crate) fn continues(&self, voters: &Configuration) -> bool {
        self.by(voters).len() * 2 >= voters.acceptors().len()
    }

    fn by(&self, voters: &Configuration) -> Tally {
        let mut tally = Tally::default();
        self.signatures.iter().for_each(|(voter, _)| tally.count(*voter, voters));
        tally
    }
}

//! What shows anybody that a history is the one that was decided.

use holdoff_paxos::log::Term;
use holdoff_paxos::{Configuration, MAX_ACCEPTORS, NodeId, Slot, Tally};
use serde::{Deserialize, Serialize};

use crate::entry::Hash;
use crate::machine::StateHash;

const HEAD: &str = "holdoff ledger v1: where a history has come to";

/// A signature, as the notary makes it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Signature(pub Vec<u8>);

/// Signs for this node, and knows whether others did.
pub trait Notary {
    /// This node's signature under a place and a hash.
    fn sign(&self, index: Slot, hash: Hash) -> Signature;

    /// Whether that is this voter's signature under them.
    fn is_signed(&self, by: NodeId, index: Slot, hash: Hash, signature: &Signature) -> bool;
}

/// Where a history has come to: the entries by their hash, and all that whoever goes on from there must know.
///
/// It is the same for everybody at the same place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Head {
    /// The place.
    pub index: Slot,
    /// The hash of the entry there, which covers all before it.
    pub hash: Hash,
    /// In whose term that entry was written.
    pub term: Term,
    /// The first place that the voters decide.
    pub start: Slot,
    /// Who decides what comes next.
    pub voters: Configuration,
    /// The hash of the machine's state.
    pub machine: StateHash,
    /// The hash of the transactions that are known to be done, and of what came of them.
    pub done: StateHash,
}

impl Head {
    /// What is signed, beside the place. None if it cannot be written down.
    pub fn digest(&self) -> Option<Hash> {
        let bytes = postcard::to_stdvec(self).ok()?;
        let mut hasher = blake3::Hasher::new_derive_key(HEAD);
        Some(Hash(*hasher.update(&bytes).finalize().as_bytes()))
    }
}

/// One voter says that the history up to a place is decided, and where it has led to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Seal {
    /// Where it has led to.
    pub head: Head,
    /// The voter's signature under that.
    pub signature: Signature,
    /// The latest voters that this one keeps a certificate of, by their first place.
    pub stone: Slot,
}

/// A majority of voters says that the history up to a place is decided, and where it has led to.
///
/// A voter signs only when it has learned that the entry is decided. Since each hash covers all before it, one
/// certificate is good for every entry up to its place, and for the state there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Certificate {
    /// Where it has led to.
    pub head: Head,
    /// Who says so.
    pub seals: Vec<(NodeId, Signature)>,
}

impl Certificate {
    /// Whether a majority of the voters that it names has signed it.
    pub fn is_genuine(&self, notary: &impl Notary) -> bool {
        let Some(digest) = self.head.digest() else { return false };
        let signed = |(voter, signature): &(NodeId, Signature)| {
            notary.is_signed(*voter, self.head.index, digest, signature)
        };
        // Who has not signed could be counted elsewhere: one bad signature spoils it.
        self.seals.len() <= MAX_ACCEPTORS && self.is_by_majority() && self.seals.iter().all(signed)
    }

    /// Whether a majority of the voters that it names has signed it, if all signatures are good.
    pub(crate) fn is_by_majority(&self) -> bool {
        self.by(&self.head.voters).is_quorum(&self.head.voters)
    }

    /// Whether it goes on from these voters: at least half of them have signed it, if all signatures are good.
    ///
    /// One voter comes or goes at a time, so that a majority of those who come next has at least half of these. As long as
    /// liars are fewer than half, one of them is honest, and honest ones sign what is decided.
    pub(crate) fn goes_on_from(&self, voters: &Configuration) -> bool {
        self.by(voters).len() * 2 >= voters.acceptors().len()
    }

    fn by(&self, voters: &Configuration) -> Tally {
        let mut tally = Tally::default();
        self.seals.iter().for_each(|(voter, _)| tally.count(*voter, voters));
        tally
    }
}

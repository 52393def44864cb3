//! What shows anybody that a history is the one that was decided.

use holdoff_paxos::{Configuration, NodeId, Slot, Tally};
use serde::{Deserialize, Serialize};

use crate::entry::Hash;

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

/// One voter says that the history up to a place is decided, and has this hash.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Seal {
    /// The place.
    pub index: Slot,
    /// The hash of the entry there, which covers all before it.
    pub hash: Hash,
    /// The voter's signature under both.
    pub signature: Signature,
}

/// A majority of voters says that the history up to a place is decided, and has this hash.
///
/// A voter signs only when it has learned that the entry is decided. Since each hash covers all before it, one
/// certificate is good for every entry up to its place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Certificate {
    /// The place.
    pub index: Slot,
    /// The hash of the entry there.
    pub hash: Hash,
    /// Who says so.
    pub seals: Vec<(NodeId, Signature)>,
}

impl Certificate {
    /// Whether a majority of these voters has signed it.
    pub fn is_of(&self, voters: &Configuration, notary: &impl Notary) -> bool {
        let mut tally = Tally::default();
        let signed = |(voter, signature): &&(NodeId, Signature)| {
            voters.contains(*voter) && notary.is_signed(*voter, self.index, self.hash, signature)
        };
        self.seals.iter().filter(signed).for_each(|(voter, _)| tally.count(*voter, voters));
        tally.is_quorum(voters)
    }
}

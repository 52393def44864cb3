//! The group of nodes, claims, hints and signed heartbeats.

use holdoff_net::{PublicKey, Signature};
use serde::{Deserialize, Serialize};

use crate::{Signer, Verifier};

/// The leader of an epoch, as proven by a certificate.
///
/// Claims are ordered by epoch, then by rank, then by the leader's key. The highest claim counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct LeaderClaim {
    /// The epoch: the number of times that a majority has voted for a change of leader.
    pub epoch: u64,
    /// The rank orders several certificates of the same epoch.
    pub rank: u32,
    /// The node that should lead.
    pub leader: PublicKey,
}

/// A claim and the leader's heartbeat counter. Nodes merge hints by maximum.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Hint {
    /// The claim.
    pub claim: LeaderClaim,
    /// The heartbeat counter. Only the leader raises it, and only while it holds a quorum.
    pub heartbeat: u64,
}

/// A heartbeat: a hint that its leader has signed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The hint.
    pub hint: Hint,
    /// The target of a leadership transfer. If it is set, this is the leader's last heartbeat.
    pub leaving: Option<PublicKey>,
    /// The leader's signature.
    pub signature: Signature,
}

impl Heartbeat {
    /// Signs a hint. The signature is valid if the signer is the leader that the hint names.
    pub fn sign(group: Group, hint: Hint, leaving: Option<PublicKey>, signer: &impl Signer) -> Self {
        Self { hint, leaving, signature: signer.sign(CONTEXT, &statement(group, &hint, leaving)) }
    }

    /// Returns whether the leader that the hint names has signed it.
    pub fn is_genuine(&self, group: Group, verifier: &impl Verifier) -> bool {
        let statement = statement(group, &self.hint, self.leaving);
        verifier.is_signed(&self.hint.claim.leader, CONTEXT, &statement, &self.signature)
    }
}

fn statement(group: Group, hint: &Hint, leaving: Option<PublicKey>) -> Vec<u8> {
    let Hint { claim: LeaderClaim { epoch, rank, leader }, heartbeat } = hint;
    let to = leaving.map_or([0; 32], |to| *to.as_bytes());
    let mut bytes = b"beat".to_vec();
    bytes.extend(group.0);
    bytes.extend(epoch.to_be_bytes());
    bytes.extend(rank.to_be_bytes());
    bytes.extend(leader.as_bytes());
    bytes.extend(heartbeat.to_be_bytes());
    bytes.push(u8::from(leaving.is_some()));
    bytes.extend(to);
    bytes
}

/// The context of all gossip signatures: a signature made for another purpose is not valid here.
pub(crate) const CONTEXT: &[u8] = b"holdoff gossip";

/// The group of nodes that gossip together. Every signature covers it, so that a statement from a group is not valid in
/// another group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Group(pub [u8; 16]);

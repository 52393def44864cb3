//! Who should lead, and the sign that it lives.

use holdoff_net::{PublicKey, Signature};
use serde::{Deserialize, Serialize};

use crate::key::CONTEXT;
use crate::{Group, Signer, Verifier};

/// Who should lead in which epoch: what a certificate proves.
///
/// The later epoch counts; within one the higher rank, then the higher key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Claim {
    /// How often a majority has wanted another leader.
    pub epoch: u64,
    /// Which of several certificates of one epoch counts.
    pub rank: u32,
    /// Who should lead.
    pub leader: PublicKey,
}

/// A claim, and how often its leader has shown since that it lives. Hints are merged by maximum.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Hint {
    /// Who should lead.
    pub claim: Claim,
    /// Raised by the leader alone, while it holds a quorum.
    pub heartbeat: u64,
}

/// A hint in its leader's own words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Beat {
    /// What it says.
    pub hint: Hint,
    /// To whom the leader would hand over: this is its last beat.
    pub leaving: Option<PublicKey>,
    /// By the leader.
    pub signature: Signature,
}

impl Beat {
    /// Signed by whom the hint names, if that is the signer.
    pub fn sign(group: Group, hint: Hint, leaving: Option<PublicKey>, pen: &impl Signer) -> Self {
        Self { hint, leaving, signature: pen.sign(CONTEXT, &statement(group, &hint, leaving)) }
    }

    /// Whether its leader said so.
    pub fn is_genuine(&self, group: Group, verifier: &impl Verifier) -> bool {
        self.is_signed_by(&self.hint.claim.leader, group, verifier)
    }

    pub(crate) fn is_signed_by(&self, key: &PublicKey, group: Group, verifier: &impl Verifier) -> bool {
        verifier.is_signed(key, CONTEXT, &statement(group, &self.hint, self.leaving), &self.signature)
    }
}

fn statement(group: Group, hint: &Hint, leaving: Option<PublicKey>) -> Vec<u8> {
    let Hint { claim: Claim { epoch, rank, leader }, heartbeat } = hint;
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

//! What a member wants decided.

use bytes::Bytes;
use holdoff_paxos::Slot;
use serde::{Deserialize, Serialize};

use crate::key::CONTEXT;
use crate::{CouncilId, OperationId, PublicKey, Signature, Signer, Verifier};

/// An operation as it travels: what its machine reads, signed by its author.
///
/// Anybody may have it decided, in any slot up to [`Operation::LIFETIME`] after the one it was born in.
/// Beyond that it never happens, which is why an id need not be remembered for ever.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Operation {
    /// Which one.
    pub id: OperationId,
    /// The last slot its author had applied when it was submitted.
    pub born: Slot,
    /// Who wants it.
    pub author: PublicKey,
    /// What the machine reads.
    pub body: Bytes,
    signature: Signature,
}

impl Operation {
    /// So many slots after its birth an operation can still be decided.
    pub const LIFETIME: u64 = 10_000;
    /// The largest body.
    pub const MAX_BODY: usize = 64 * 1024;

    /// Signs an operation.
    pub fn sign(council: CouncilId, id: OperationId, born: Slot, body: Bytes, signer: &dyn Signer) -> Self {
        let author = signer.public();
        let signature = signer.sign(CONTEXT, &signed_part(council, id, born, &author, &body));
        Self { id, born, author, body, signature }
    }

    /// Whether its author has signed it, for this council.
    pub fn is_signed(&self, council: CouncilId, verifier: &dyn Verifier) -> bool {
        let message = signed_part(council, self.id, self.born, &self.author, &self.body);
        self.body.len() <= Self::MAX_BODY
            && verifier.is_signed(&self.author, CONTEXT, &message, &self.signature)
    }

    /// Whether it may happen in this slot.
    pub fn may_happen_in(&self, slot: Slot) -> bool {
        self.born < slot && slot.0 - self.born.0 <= Self::LIFETIME
    }
}

fn signed_part(council: CouncilId, id: OperationId, born: Slot, author: &PublicKey, body: &[u8]) -> Vec<u8> {
    [b"holdoff operation", &council.0[..], &id.0, &born.0.to_le_bytes(), author.as_bytes(), body].concat()
}

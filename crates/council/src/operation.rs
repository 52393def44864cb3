//! The operations that a council decides.

use bytes::Bytes;
use holdoff_paxos::Slot;
use serde::{Deserialize, Serialize};

use crate::key::CONTEXT;
use crate::{CouncilId, OperationId, PublicKey, Signature, Signer, Verifier};

/// An operation on the wire: the body for the machine, signed by its author.
///
/// Any member may have it decided, in any slot up to [`Operation::LIFETIME`] slots after its birth slot. Later it
/// is never applied, so devices need not remember its id for ever.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Operation {
    /// The id of the operation.
    pub id: OperationId,
    /// The birth slot: the last slot that the author had applied when it submitted the operation.
    pub born: Slot,
    /// The member that requested the operation.
    pub author: PublicKey,
    /// The body, which the machine decodes.
    pub body: Bytes,
    signature: Signature,
}

impl Operation {
    /// The number of slots after its birth slot in which an operation can still be decided.
    pub const LIFETIME: u64 = 10_000;
    /// The maximum size of a body.
    pub const MAX_BODY: usize = 64 * 1024;

    /// Creates a signed operation.
    pub fn sign(council: CouncilId, id: OperationId, born: Slot, body: Bytes, signer: &dyn Signer) -> Self {
        let author = signer.public();
        let signature = signer.sign(CONTEXT, &signed_part(council, id, born, &author, &body));
        Self { id, born, author, body, signature }
    }

    /// Returns whether the author has signed the operation for this council.
    pub fn is_signed(&self, council: CouncilId, verifier: &dyn Verifier) -> bool {
        let message = signed_part(council, self.id, self.born, &self.author, &self.body);
        self.body.len() <= Self::MAX_BODY
            && verifier.is_signed(&self.author, CONTEXT, &message, &self.signature)
    }

    /// Returns whether the operation may be applied in this slot.
    pub fn may_happen_in(&self, slot: Slot) -> bool {
        self.born < slot && slot.0 - self.born.0 <= Self::LIFETIME
    }
}

fn signed_part(council: CouncilId, id: OperationId, born: Slot, author: &PublicKey, body: &[u8]) -> Vec<u8> {
    [b"holdoff operation", &council.0[..], &id.0, &born.0.to_le_bytes(), author.as_bytes(), body].concat()
}

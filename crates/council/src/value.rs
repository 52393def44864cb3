//! What a slot decides.

use bytes::Bytes;
use holdoff_paxos::Slot;
use serde::{Deserialize, Serialize};

use crate::key::CONTEXT;
use crate::{CouncilId, Digest, Operation, OperationId, PublicKey, Signature, Signer, Verifier};

/// What is proposed for a slot: operations, signed by who put them together.
///
/// Acceptors keep it without reading it. Its [`Digest`] says whether it is mine: never the ballot, for
/// any member may have had to propose it again under another one.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Value {
    /// A [`Batch`].
    bytes: Bytes,
    /// Who put it together.
    pub author: PublicKey,
    signature: Signature,
}

/// What a value holds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Batch {
    /// What was decided before, all of it: a value fits one history only.
    pub previous: Digest,
    /// The operations, in their order.
    pub operations: Vec<Operation>,
    /// Operations that their author takes back: they will never happen.
    pub withdrawn: Vec<OperationId>,
    /// Makes two values of the same operations different.
    pub nonce: u64,
}

impl Value {
    /// The largest value.
    pub const MAX_BYTES: usize = 256 * 1024;

    /// Signs a batch for one slot of one council.
    pub fn sign(
        council: CouncilId,
        slot: Slot,
        batch: &Batch,
        signer: &dyn Signer,
    ) -> Result<Self, postcard::Error> {
        let bytes = Bytes::from(postcard::to_allocvec(batch)?);
        let author = signer.public();
        let signature = signer.sign(CONTEXT, &signed_part(council, slot, &author, &bytes));
        Ok(Self { bytes, author, signature })
    }

    /// Whether its author has signed it, for this slot of this council.
    pub fn is_signed(&self, council: CouncilId, slot: Slot, verifier: &dyn Verifier) -> bool {
        let message = signed_part(council, slot, &self.author, &self.bytes);
        self.len() <= Self::MAX_BYTES && verifier.is_signed(&self.author, CONTEXT, &message, &self.signature)
    }

    /// What it holds, if it can be read.
    pub fn batch(&self) -> Option<Batch> {
        postcard::from_bytes(&self.bytes).ok()
    }

    /// What it hashes to.
    pub fn digest(&self) -> Digest {
        Digest::of(&[b"holdoff value", self.author.as_bytes(), &self.bytes])
    }

    /// How large it is.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there is nothing in it, not even an empty batch.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

fn signed_part(council: CouncilId, slot: Slot, author: &PublicKey, bytes: &[u8]) -> Vec<u8> {
    [b"holdoff value", &council.0[..], &slot.0.to_le_bytes(), author.as_bytes(), bytes].concat()
}

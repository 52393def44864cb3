//! The signed operations of members, and the signed values that slots decide.

use bytes::Bytes;
use holdoff_paxos::Slot;
use serde::{Deserialize, Serialize};

use crate::{
    AccessChange, CouncilId, Digest, OperationId, PublicKey, Signature, SignedAccess, Signer, Verifier,
};

/// The proposal for a slot: operations, and what acceptors must know of them, signed by the author of the value.
///
/// Acceptors store the operations without decoding them. A device recognizes its own value by the [`Digest`] and never by
/// the ballot, because any member may have had to propose the value again under another ballot.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct SlotValue {
    /// An encoded [`Batch`].
    bytes: Bytes,
    /// The member that created the value.
    pub author: PublicKey,
    /// The change of the members by the operations, from which acceptors learn who the members are. Devices skip a value
    /// with another change than its operations make.
    pub access: Option<AccessChange>,
    /// Whether an operation compacts the history. Acceptors have room for such a value when the council is full. Devices
    /// skip a value for which this is wrong.
    pub compacts: bool,
    signature: Signature,
}

/// The content of a value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Batch {
    /// The hash of all earlier decisions. A value fits a single history only.
    pub previous: Digest,
    /// The operations, in order.
    pub operations: Vec<SignedOperation>,
    /// Operations that their author withdraws. They will never be applied.
    pub withdrawn: Vec<OperationId>,
    /// A random number that distinguishes two values with the same operations.
    pub nonce: u64,
}

impl SlotValue {
    /// The maximum size of a value.
    pub const MAX_BYTES: usize = 256 * 1024;

    /// Signs a batch for one slot of one council.
    pub fn sign(
        council: CouncilId,
        slot: Slot,
        batch: &Batch,
        access: Option<AccessChange>,
        compacts: bool,
        signer: &dyn Signer,
    ) -> Result<Self, postcard::Error> {
        let bytes = Bytes::from(postcard::to_allocvec(batch)?);
        let author = signer.public();
        let message = signed_part(council, slot, &author, batch_digest(&bytes), access.as_ref(), compacts);
        let signature = signer.sign(CONTEXT, &message);
        Ok(Self { bytes, author, access, compacts, signature })
    }

    /// Returns whether the author has signed the value for this slot of this council.
    pub fn is_signed(&self, council: CouncilId, slot: Slot, verifier: &dyn Verifier) -> bool {
        let batch = batch_digest(&self.bytes);
        let message = signed_part(council, slot, &self.author, batch, self.access.as_ref(), self.compacts);
        self.len() <= Self::MAX_BYTES && verifier.is_signed(&self.author, CONTEXT, &message, &self.signature)
    }

    /// Decodes the content of the value.
    pub fn batch(&self) -> Option<Batch> {
        postcard::from_bytes(&self.bytes).ok()
    }

    /// Returns the change of the members if the value is decided in this slot, with the signature of its author.
    pub fn signed_access(&self, slot: Slot) -> Option<SignedAccess> {
        let Self { bytes, author, access, compacts, signature } = self.clone();
        Some(SignedAccess { slot, author, change: access?, batch: batch_digest(&bytes), compacts, signature })
    }

    /// Returns the hash of the value.
    pub fn digest(&self) -> Digest {
        let access = access_digest(self.access.as_ref());
        let signature = self.signature.to_bytes();
        Digest::of(&[b"holdoff value", self.author.as_bytes(), &self.bytes, &access.0, &signature])
    }

    /// Returns the size of the value in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len() + self.access.as_ref().map_or(0, AccessChange::keys) * size_of::<PublicKey>()
    }

    /// Returns whether the value contains no bytes, not even an empty batch.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// Returns the bytes of a value that its author signs. The hash of the operations is enough to check the signature.
pub(crate) fn signed_part(
    council: CouncilId,
    slot: Slot,
    author: &PublicKey,
    batch: Digest,
    access: Option<&AccessChange>,
    compacts: bool,
) -> Vec<u8> {
    let (slot, access, compacts) = (slot.0.to_le_bytes(), access_digest(access), [u8::from(compacts)]);
    [b"holdoff value", &council.0[..], &slot, author.as_bytes(), &batch.0, &access.0, &compacts].concat()
}

fn batch_digest(bytes: &[u8]) -> Digest {
    Digest::of(&[b"holdoff batch", bytes])
}

fn access_digest(access: Option<&AccessChange>) -> Digest {
    access.map_or_else(Digest::default, AccessChange::digest)
}

/// An operation on the wire: the body for the machine, signed by its author.
///
/// Any member may have it decided, in any slot up to [`SignedOperation::LIFETIME`] slots after its birth slot. Later it
/// is never applied, so devices need not remember its id for ever.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct SignedOperation {
    /// The id of the operation.
    pub id: OperationId,
    /// The birth slot: the last slot that the author had applied when it submitted the operation.
    pub birth_slot: Slot,
    /// The member that requested the operation.
    pub author: PublicKey,
    /// The body, which the machine decodes.
    pub body: Bytes,
    signature: Signature,
}

impl SignedOperation {
    /// The number of slots after its birth slot in which an operation can still be decided.
    pub const LIFETIME: u64 = 10_000;
    /// The maximum size of a body.
    pub const MAX_BODY: usize = 64 * 1024;

    /// Creates a signed operation.
    pub fn sign(
        council: CouncilId,
        id: OperationId,
        birth_slot: Slot,
        body: Bytes,
        signer: &dyn Signer,
    ) -> Self {
        let author = signer.public();
        let signature = signer.sign(CONTEXT, &signed_operation(council, id, birth_slot, &author, &body));
        Self { id, birth_slot, author, body, signature }
    }

    /// Returns whether the author has signed the operation for this council.
    pub fn is_signed(&self, council: CouncilId, verifier: &dyn Verifier) -> bool {
        let message = signed_operation(council, self.id, self.birth_slot, &self.author, &self.body);
        self.body.len() <= Self::MAX_BODY
            && verifier.is_signed(&self.author, CONTEXT, &message, &self.signature)
    }

    /// Returns whether the operation may be applied in this slot.
    pub fn may_happen_in(&self, slot: Slot) -> bool {
        self.birth_slot < slot && slot.0 - self.birth_slot.0 <= Self::LIFETIME
    }
}

fn signed_operation(
    council: CouncilId,
    id: OperationId,
    birth_slot: Slot,
    author: &PublicKey,
    body: &[u8],
) -> Vec<u8> {
    [b"holdoff operation", &council.0[..], &id.0, &birth_slot.0.to_le_bytes(), author.as_bytes(), body]
        .concat()
}

/// The context of all signatures of councils. A signature that was made for another purpose is not valid here.
pub(crate) const CONTEXT: &[u8] = b"holdoff council";

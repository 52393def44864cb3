//! The traits through which pure cores sign and verify.

use crate::{Key, PublicKey, Signature};

/// Signs for one node.
///
/// It is a trait because simulations, which sign a million times, use a cheaper implementation.
pub trait Signer {
    /// Returns the public key of the signatures.
    fn public(&self) -> PublicKey;

    /// Signs the message for this context. A signature made for one context is not valid in another.
    fn sign(&self, context: &[u8], message: &[u8]) -> Signature;
}

/// Verifies signatures of other nodes.
pub trait Verifier {
    /// Returns whether this is the key's signature of the message for this context.
    fn is_signed(&self, by: &PublicKey, context: &[u8], message: &[u8], signature: &Signature) -> bool;
}

impl Signer for Key {
    fn public(&self) -> PublicKey {
        Key::public(self)
    }

    fn sign(&self, context: &[u8], message: &[u8]) -> Signature {
        Key::sign(self, context, message)
    }
}

/// Verifies signatures of [`Key`]s strictly, by Ed25519.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ed25519;

impl Verifier for Ed25519 {
    fn is_signed(&self, by: &PublicKey, context: &[u8], message: &[u8], signature: &Signature) -> bool {
        by.verify(context, message, signature)
    }
}

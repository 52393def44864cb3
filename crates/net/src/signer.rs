//! Signing and checking, as far as a pure core must know them.

use crate::{Key, PublicKey, Signature};

/// Signs for one node.
///
/// A trait, for simulations sign a million times.
pub trait Signer {
    /// Whose signatures these are.
    fn public(&self) -> PublicKey;

    /// Signs the message for this context: a signature made for one is worth nothing in another.
    fn sign(&self, context: &[u8], message: &[u8]) -> Signature;
}

/// Checks what others have signed.
pub trait Verifier {
    /// Whether it is this key's signature of this, for this context.
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

/// Checks signatures of [`Key`]s: strictly, by Ed25519.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ed25519;

impl Verifier for Ed25519 {
    fn is_signed(&self, by: &PublicKey, context: &[u8], message: &[u8], signature: &Signature) -> bool {
        by.verify(context, message, signature)
    }
}

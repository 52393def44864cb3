//! Cheap keys for simulations: a signature is a hash. Any node could forge it, but no simulated node does.

use crate::{Digest, PublicKey, Signature, Signer, Verifier};

/// Returns the key of the participant with this number.
pub(super) fn key(number: u64) -> PublicKey {
    PublicKey::from_bytes(Digest::of(&[b"key", &number.to_le_bytes()]).0)
}

/// A signer for any key.
#[derive(Clone, Copy)]
pub(crate) struct Pen(pub(crate) PublicKey);

impl Signer for Pen {
    fn public(&self) -> PublicKey {
        self.0
    }

    fn sign(&self, context: &[u8], message: &[u8]) -> Signature {
        let mut bytes = [0; 64];
        bytes[..32].copy_from_slice(&Digest::of(&[self.0.as_bytes(), context, message]).0);
        Signature::from_bytes(bytes)
    }
}

impl Verifier for Pen {
    fn is_signed(&self, by: &PublicKey, context: &[u8], message: &[u8], signature: &Signature) -> bool {
        Pen(*by).sign(context, message) == *signature
    }
}

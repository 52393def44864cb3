//! Signatures as they are outside of simulations.

use holdoff_net::Key;

use crate::{PublicKey, Signature, Signer, Verifier};

/// What signatures of this crate mean: those of others are worth nothing here.
const CONTEXT: &[u8] = b"holdoff council 1";

/// Signs with a peer's own key.
#[derive(Clone, Debug)]
pub struct Signing(pub Key);

impl Signer for Signing {
    fn public(&self) -> PublicKey {
        self.0.public().into()
    }

    fn sign(&self, message: &[u8]) -> Signature {
        let bytes = self.0.sign(CONTEXT, message).to_bytes();
        let (mut first, mut last) = ([0; 32], [0; 32]);
        for (to, from) in first.iter_mut().chain(&mut last).zip(bytes) {
            *to = from;
        }
        Signature(first, last)
    }
}

/// Checks signatures made so.
#[derive(Clone, Copy, Debug)]
pub struct Ed25519;

impl Verifier for Ed25519 {
    fn is_signed(&self, by: &PublicKey, message: &[u8], signature: &Signature) -> bool {
        let mut bytes = [0; 64];
        for (to, from) in bytes.iter_mut().zip(signature.0.into_iter().chain(signature.1)) {
            *to = from;
        }
        let by = holdoff_net::PublicKey::from(*by);
        by.verify(CONTEXT, message, &holdoff_net::Signature::from_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_signs() {
        let (key, other) = (Signing(Key::generate().unwrap()), Signing(Key::generate().unwrap()));
        let signature = key.sign(b"a vote");
        assert!(Ed25519.is_signed(&key.public(), b"a vote", &signature));
        assert!(!Ed25519.is_signed(&key.public(), b"another", &signature));
        assert!(!Ed25519.is_signed(&other.public(), b"a vote", &signature));
    }
}

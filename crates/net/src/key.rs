//! The secret key of a peer.

mod file;

use std::fmt;
use std::sync::Arc;

use ed25519_dalek::{Signer, SigningKey};
use zeroize::Zeroizing;

use crate::signature::signed;
use crate::{PublicKey, Signature};

pub use file::KeyFileError;

/// A secret Ed25519 key. The holder of the key is the peer.
///
/// `Debug` shows only the public key. The secret is wiped from memory when the last clone is dropped, and stored in a
/// file that only its owner may read ([`Key::load_or_create`]).
#[derive(Clone)]
pub struct Key(Arc<SigningKey>);

/// The operating system returned no random numbers. No key was created.
#[derive(Debug, thiserror::Error)]
#[error("no key can be made, because the system gives no random numbers: {0}")]
pub struct NoRandomness(#[from] getrandom::Error);

impl Key {
    /// Generates a key from the operating system's random numbers.
    pub fn generate() -> Result<Self, NoRandomness> {
        let mut secret = Zeroizing::new([0; 32]);
        getrandom::fill(secret.as_mut())?;
        Ok(Self::from_secret(&secret))
    }

    /// Creates the key with this secret. It is meant for simulations; all other callers use [`Key::generate`].
    pub fn from_secret(secret: &[u8; 32]) -> Self {
        Self(Arc::new(SigningKey::from_bytes(secret)))
    }

    /// Returns the public key.
    pub fn public(&self) -> PublicKey {
        PublicKey::from_bytes(self.0.verifying_key().to_bytes())
    }

    /// Signs the message for this context. A signature made for one context is not valid in another.
    ///
    /// A context states the meaning of a signature, such as `b"holdoff council vote"`. It is not a secret.
    pub fn sign(&self, context: &[u8], message: &[u8]) -> Signature {
        Signature::from_bytes(self.sign_raw(&signed(context, message)))
    }

    /// Signs without a context of this crate, for the TLS handshake, which has its own.
    pub(crate) fn sign_raw(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign(message).to_bytes()
    }

    fn secret(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key(the secret of {})", self.public())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_is_never_shown() {
        let key = Key::from_secret(&[0xab; 32]);
        let shown = format!("{key:?} {key:#?}");
        assert!(!shown.contains("abab") && !shown.contains("171"), "{shown}");
        assert!(shown.contains(&key.public().to_string()));
    }

    #[test]
    fn no_two_are_the_same() {
        assert_ne!(Key::generate().unwrap().public(), Key::generate().unwrap().public());
    }
}

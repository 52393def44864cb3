//! Keys and signatures, as far as a pure core must know them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A member's or an acceptor's Ed25519 key: who it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// The key of these bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for PublicKey {
    /// As 64 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        holdoff_net::PublicKey::from(*self).fmt(f)
    }
}

impl std::str::FromStr for PublicKey {
    type Err = holdoff_net::InvalidPublicKey;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(|key: holdoff_net::PublicKey| key.into())
    }
}

impl From<holdoff_net::PublicKey> for PublicKey {
    fn from(key: holdoff_net::PublicKey) -> Self {
        Self(*key.as_bytes())
    }
}

impl From<PublicKey> for holdoff_net::PublicKey {
    fn from(key: PublicKey) -> Self {
        Self::from_bytes(key.0)
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().take(4).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What a key has signed something with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Signature(pub [u8; 32], pub [u8; 32]);

/// Signs for one member, and checks what any has signed.
///
/// A trait, for simulations sign a million times.
pub trait Signer {
    /// Whose signatures these are.
    fn public(&self) -> PublicKey;

    /// Signs.
    fn sign(&self, message: &[u8]) -> Signature;
}

/// Checks what others have signed.
pub trait Verifier {
    /// Whether it is this key's signature of this.
    fn is_signed(&self, by: &PublicKey, message: &[u8], signature: &Signature) -> bool;
}

//! The identity of a peer.

use std::fmt;
use std::str::FromStr;

use ed25519_dalek::VerifyingKey;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::hex::{self, HexError};
use crate::signature::{Signature, signed};

/// The identity of a peer: its Ed25519 public key.
///
/// It is formatted and parsed as 64 lower-case hexadecimal digits; no other spelling is accepted.
///
/// ```
/// use holdoff_net::{SecretKey, PublicKey};
///
/// let peer = SecretKey::generate()?.public();
/// assert_eq!(peer.to_string().parse::<PublicKey>()?, peer);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; 32]);

/// The reason why a text is not a public key.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a public key, which has 64 hexadecimal digits: {why}")]
pub struct InvalidPublicKey {
    why: String,
}

impl PublicKey {
    /// Creates the key with these bytes. Bytes that are not a valid key verify no signature and pass no handshake.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes of the key.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns whether the owner of this key signed the message for this context.
    ///
    /// Verification is strict: it accepts only the canonical signature, and rejects weak keys, under which any
    /// signature would verify.
    #[must_use]
    pub fn verify(&self, context: &[u8], message: &[u8], signature: &Signature) -> bool {
        self.verify_raw(&signed(context, message), &signature.to_bytes())
    }

    /// Verifies without a context of this crate, for the TLS handshake, which has its own.
    pub(crate) fn verify_raw(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        let signature = ed25519_dalek::Signature::from_bytes(signature);
        VerifyingKey::from_bytes(&self.0).is_ok_and(|key| key.verify_strict(message, &signature).is_ok())
    }

    /// Returns the first eight digits, enough for a person to tell a few peers apart. No decision may depend on them.
    pub fn short(&self) -> String {
        self.to_string().chars().take(8).collect()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write(&self.0, f)
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl FromStr for PublicKey {
    type Err = InvalidPublicKey;

    /// Rejects digits that are not a valid key, because a mistyped digit rarely yields one.
    fn from_str(text: &str) -> Result<Self, InvalidPublicKey> {
        let invalid = |why: String| InvalidPublicKey { why };
        let bytes = hex::read(text).map_err(|why: HexError| invalid(why.to_string()))?;
        match VerifyingKey::from_bytes(&bytes) {
            Ok(key) if !key.is_weak() => Ok(Self(bytes)),
            _ => Err(invalid("these digits are not a valid key: check them for a typing error".to_owned())),
        }
    }
}

/// Text in human-readable formats, 32 bytes in others.
impl Serialize for PublicKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return serializer.collect_str(self);
        }
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for PublicKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            return String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom);
        }
        <[u8; 32]>::deserialize(deserializer).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SecretKey;

    #[test]
    fn a_public_key_has_exactly_one_spelling() {
        let key = SecretKey::generate().unwrap().public();
        let text = key.to_string();
        assert_eq!(text.parse(), Ok(key));
        let why = |text: &str| text.parse::<PublicKey>().unwrap_err().to_string();
        assert!(why(&text[1..]).ends_with("it has 63 characters"));
        assert!(why("").ends_with("it has 0 characters"));
        assert!(why(&format!("{}G", &text[1..])).contains("'G' at position 64 is not one of 0-9"));
        assert!(why(&format!("A{}", &text[1..])).contains("'A' at position 1 must be lower case"));
        assert!(why(&format!("ä{}", &text[2..])).contains("'ä' at position 1"));
        assert!(why(&format!("02{}", "0".repeat(62))).contains("these digits are not a valid key"));
        assert!(
            why(&format!("01{}", "0".repeat(62))).contains("these digits are not a valid key"),
            "a weak key"
        );
    }

    #[test]
    fn a_public_key_serializes_as_text_or_as_32_bytes() {
        let key = SecretKey::generate().unwrap().public();
        let json = serde_json::to_string(&key).unwrap();
        assert_eq!(json, format!("\"{key}\""));
        assert_eq!(serde_json::from_str::<PublicKey>(&json).unwrap(), key);
        assert!(
            serde_json::from_str::<PublicKey>("\"abc\"").unwrap_err().to_string().contains("3 characters")
        );
        let bytes = postcard::to_stdvec(&key).unwrap();
        assert_eq!(bytes, key.as_bytes());
        assert_eq!(postcard::from_bytes::<PublicKey>(&bytes).unwrap(), key);
    }
}

//! Signatures over a context and a message, and the traits through which pure cores sign and verify.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{PublicKey, SecretKey, hex};

/// A signature by the owner of a key, over a context and a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Signature([u8; 64]);

impl Signature {
    /// Creates a signature from these bytes. Only verification shows whether it is valid.
    pub const fn from_bytes(bytes: [u8; 64]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes of the signature.
    pub const fn to_bytes(&self) -> [u8; 64] {
        self.0
    }
}

/// Returns the bytes to sign. The length of the context precedes it, so that no two pairs of context and message have
/// the same bytes.
///
/// The bytes that TLS signs begin with spaces. A handshake can therefore not be made to sign these bytes, nor this
/// function those of a handshake.
pub(crate) fn signed(context: &[u8], message: &[u8]) -> Vec<u8> {
    const PURPOSE: &[u8] = b"holdoff-net signature 1\0";
    let length = u64::try_from(context.len()).unwrap_or(u64::MAX).to_be_bytes();
    [PURPOSE, &length, context, message].concat()
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write(&self.0, f)
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signature({self})")
    }
}

/// Text in human-readable formats, 64 bytes in others.
impl Serialize for Signature {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return serializer.collect_str(self);
        }
        let (r, s) = self.0.split_at(32);
        (<[u8; 32]>::try_from(r).unwrap_or_default(), <[u8; 32]>::try_from(s).unwrap_or_default())
            .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Signature {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            let text = String::deserialize(deserializer)?;
            let not = |why| serde::de::Error::custom(format!("not a signature: {why}"));
            return hex::read(&text).map(Self).map_err(not);
        }
        let (r, s) = <([u8; 32], [u8; 32])>::deserialize(deserializer)?;
        let mut bytes = [0; 64];
        for (to, from) in bytes.iter_mut().zip(r.into_iter().chain(s)) {
            *to = from;
        }
        Ok(Self(bytes))
    }
}

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

impl Signer for SecretKey {
    fn public(&self) -> PublicKey {
        SecretKey::public(self)
    }

    fn sign(&self, context: &[u8], message: &[u8]) -> Signature {
        SecretKey::sign(self, context, message)
    }
}

/// Verifies signatures of [`SecretKey`]s strictly, by Ed25519.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ed25519;

impl Verifier for Ed25519 {
    fn is_signed(&self, by: &PublicKey, context: &[u8], message: &[u8], signature: &Signature) -> bool {
        by.verify(context, message, signature)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_bound_to_key_context_and_message() {
        let (key, other) = (SecretKey::generate().unwrap(), SecretKey::generate().unwrap());
        let signature = key.sign(b"vote", b"for slot 7");
        assert!(key.public().verify(b"vote", b"for slot 7", &signature));
        assert!(!key.public().verify(b"vote", b"for slot 8", &signature));
        assert!(!key.public().verify(b"vot", b"efor slot 7", &signature), "the context's end is signed, too");
        assert!(!key.public().verify(b"", b"votefor slot 7", &signature));
        assert!(!other.public().verify(b"vote", b"for slot 7", &signature));
        assert_eq!(signature, key.sign(b"vote", b"for slot 7"), "signing draws no random numbers");
    }

    #[test]
    fn invalid_and_weak_keys_verify_nothing() {
        let signature = Signature::from_bytes([0; 64]);
        let mut weak = [0; 32];
        weak[0] = 1;
        for bytes in [[2; 32], [255; 32], weak] {
            assert!(!PublicKey::from_bytes(bytes).verify(b"a", b"b", &signature));
        }
    }

    #[test]
    fn a_signature_round_trips_through_text_and_bytes() {
        let signature = SecretKey::generate().unwrap().sign(b"a", b"b");
        let json = serde_json::to_string(&signature).unwrap();
        assert_eq!(serde_json::from_str::<Signature>(&json).unwrap(), signature);
        let bytes = postcard::to_stdvec(&signature).unwrap();
        assert_eq!(bytes, signature.to_bytes());
        assert_eq!(postcard::from_bytes::<Signature>(&bytes).unwrap(), signature);
        assert!(serde_json::from_str::<Signature>("\"0\"").is_err());
    }
}

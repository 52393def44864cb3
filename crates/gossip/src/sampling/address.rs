//! Addresses of peers.

use holdoff_net::PublicKey;
use serde::{Deserialize, Serialize};

const LONGEST: usize = 64;

/// Another node and its address. The node at the address must prove its key, so that a wrong address does no harm.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Peer {
    /// The peer's public key.
    pub key: PublicKey,
    /// The peer's address.
    pub address: Address,
}

/// A host and a port as text, at most 64 bytes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Address(String);

/// The error for a text that is not an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("an address has 1 to {LONGEST} bytes, none of them a blank; this one does not")]
pub struct BadAddress;

impl TryFrom<String> for Address {
    type Error = BadAddress;

    fn try_from(text: String) -> Result<Self, BadAddress> {
        let is_blank = |character: char| character.is_whitespace() || character.is_control();
        match text.len() {
            1..=LONGEST if !text.contains(is_blank) => Ok(Self(text)),
            _ => Err(BadAddress),
        }
    }
}

impl From<Address> for String {
    fn from(Address(text): Address) -> Self {
        text
    }
}

impl AsRef<str> for Address {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

//! Cheap keys for simulations: a signature is a hash that any node could compute. Lying voters still sign only with
//! their own key.

use crate::{Address, Group, Peer, PublicKey, Signature, Signer, Verifier};

pub(crate) const GROUP: Group = Group([7; 16]);

/// Returns the key of a node. The node's number is at the end of the key.
pub(crate) fn key(number: u32) -> PublicKey {
    let mut bytes = *blake3::hash(&number.to_le_bytes()).as_bytes();
    bytes[28..].copy_from_slice(&number.to_le_bytes());
    PublicKey::from_bytes(bytes)
}

pub(crate) fn number(key: &PublicKey) -> u32 {
    u32::from_le_bytes(key.as_bytes()[28..].try_into().unwrap())
}

pub(crate) fn peer(number: u32) -> Peer {
    let address = Address::try_from(format!("10.0.0.{number}:7946")).unwrap();
    Peer { key: key(number), address }
}

/// Signs with the key of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pen(pub(crate) PublicKey);

impl Signer for Pen {
    fn public(&self) -> PublicKey {
        self.0
    }

    fn sign(&self, context: &[u8], message: &[u8]) -> Signature {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.0.as_bytes()).update(context).update(message);
        let mut bytes = [0; 64];
        bytes[..32].copy_from_slice(hasher.finalize().as_bytes());
        Signature::from_bytes(bytes)
    }
}

impl Verifier for Pen {
    fn is_signed(&self, by: &PublicKey, context: &[u8], message: &[u8], signature: &Signature) -> bool {
        Pen(*by).sign(context, message) == *signature
    }
}

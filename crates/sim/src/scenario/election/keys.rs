//! Keys and signatures that cost almost nothing: no node of this scenario forges any.

use holdoff_gossip::{Address, Group, Peer, PublicKey, Signature, Signer, Verifier};

use crate::kernel::{NodeId, mix};

pub(super) const GROUP: Group = Group([1; 16]);

/// Returns the key of a node in the run with this seed; the key ends with the node's number.
pub(super) fn key(seed: u64, node: NodeId) -> PublicKey {
    let mut bytes = [0; 32];
    let (random, number) = bytes.split_at_mut(28);
    for (place, chunk) in (0..).zip(random.chunks_mut(8)) {
        let word = mix(mix(seed, u64::from(node)), place).to_le_bytes();
        chunk.iter_mut().zip(word).for_each(|(byte, value)| *byte = value);
    }
    number.copy_from_slice(&node.to_le_bytes());
    PublicKey::from_bytes(bytes)
}

/// Returns the number of the key's node.
pub(super) fn number(key: &PublicKey) -> NodeId {
    let [.., a, b, c, d] = *key.as_bytes();
    NodeId::from_le_bytes([a, b, c, d])
}

/// Returns a node with its nominal address; never `None`, because the address is valid.
pub(super) fn peer(seed: u64, node: NodeId) -> Option<Peer> {
    let [_, high, middle, low] = node.to_be_bytes();
    let address = Address::try_from(format!("10.{high}.{middle}.{low}:7946")).ok()?;
    Some(Peer { key: key(seed, node), address })
}

/// Signs with one key, and verifies the signatures of all keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pen(pub(super) PublicKey);

impl Signer for Pen {
    fn public(&self) -> PublicKey {
        self.0
    }

    fn sign(&self, _: &[u8], message: &[u8]) -> Signature {
        let words = self.0.as_bytes().chunks(8).chain(message.chunks(8));
        let sum = words
            .fold(0, |sum, chunk| mix(sum, chunk.iter().fold(0, |word, byte| word << 8 | u64::from(*byte))));
        let mut bytes = [0; 64];
        bytes.iter_mut().zip(sum.to_le_bytes()).for_each(|(byte, value)| *byte = value);
        Signature::from_bytes(bytes)
    }
}

impl Verifier for Pen {
    fn is_signed(&self, by: &PublicKey, _: &[u8], message: &[u8], signature: &Signature) -> bool {
        Self(*by).sign(&[], message) == *signature
    }
}

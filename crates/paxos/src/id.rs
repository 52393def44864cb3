//! Identifiers of nodes and slots.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The purpose of the hash. Another hash over the same bytes has another result.
const CONTEXT: &str = "holdoff v1: the id of a node, from its key and the incarnation of its store";

/// The id of a participant. It identifies the participant's key **and** the incarnation of its storage.
///
/// A node that lost its disk must return under another id, because it may have made promises that it no longer knows.
/// [`NodeId::derive`] guarantees this if each new store draws another incarnation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u128);

impl NodeId {
    /// Derives the id of a node from its public key and the incarnation of its store.
    ///
    /// Two nodes with different keys or different incarnations have different ids: the id is a cryptographic hash.
    pub fn derive(key: &[u8; 32], incarnation: u64) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        let digest = *hasher.update(key).update(&incarnation.to_le_bytes()).finalize().as_bytes();
        let (id, _) = digest.split_first_chunk().unwrap_or((&[0; 16], &[]));
        Self(u128::from_be_bytes(*id))
    }
}

impl fmt::Display for NodeId {
    /// Writes the first eight hex digits, enough to distinguish the members of one council.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0 >> 96)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 >> 96 == 0 { write!(f, "n{}", self.0) } else { fmt::Display::fmt(self, f) }
    }
}

/// The index of a decision. The first slot is 1; slot 0 precedes all slots.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
pub struct Slot(pub u64);

impl Slot {
    /// Returns the slot after this slot.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_key_or_another_incarnation_is_another_node() {
        let id = NodeId::derive(&[1; 32], 1);
        assert_eq!(NodeId::derive(&[1; 32], 1), id);
        assert_ne!(NodeId::derive(&[1; 32], 2), id);
        assert_ne!(NodeId::derive(&[2; 32], 1), id);
    }
}

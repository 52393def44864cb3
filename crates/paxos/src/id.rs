//! Identifiers of nodes and slots.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The id of a participant. It identifies the participant's key **and** the incarnation of its storage.
///
/// A node that lost its disk must return under another id, because it may have made promises that it no longer knows.
/// This crate only compares ids; the code that creates them guarantees this rule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u128);

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

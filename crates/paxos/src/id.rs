//! Who takes part, and what is decided.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A participant: its key **and** the life of its storage.
///
/// Whoever lost its disk must come back under another id, for it may have promised what it no longer
/// knows. This crate only compares ids; who makes them sees to that.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u128);

impl fmt::Display for NodeId {
    /// The first eight digits: enough to tell the members of one council apart.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0 >> 96)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 >> 96 == 0 { write!(f, "n{}", self.0) } else { fmt::Display::fmt(self, f) }
    }
}

/// A place in the order of decisions. The first one is 1; 0 stands before all of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
pub struct Slot(pub u64);

impl Slot {
    /// The one after it.
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

//! Who holds, or wants, a lock.

use std::fmt;

use uuid::Uuid;

/// One wish for a lock: drawn anew for each acquisition, and never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Nonce(Uuid);

impl Nonce {
    pub(crate) fn fresh() -> Self {
        Self(Uuid::new_v4())
    }

    /// The nonce with this number.
    pub const fn new(number: Uuid) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn get(self) -> Uuid {
        self.0
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Who wants a lock. The nonce decides; the name is for people.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Owner {
    /// This wish, and no other.
    pub nonce: Nonce,
    /// What the process is called: nothing is decided by it.
    pub name: String,
}

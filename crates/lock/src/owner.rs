//! The identity of a holder or contender.

use std::fmt;

use uuid::Uuid;

/// The identifier of one acquisition: random, and never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Nonce(Uuid);

impl Nonce {
    pub(crate) fn fresh() -> Self {
        Self(Uuid::new_v4())
    }

    /// Returns the nonce with this number.
    pub const fn new(number: Uuid) -> Self {
        Self(number)
    }

    /// Returns the number.
    pub const fn get(self) -> Uuid {
        self.0
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The identity of a contender. Decisions depend on the nonce; the name is for display.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Owner {
    /// The nonce of this acquisition.
    pub nonce: Nonce,
    /// The displayed name of the process. No decision depends on it.
    pub name: String,
}

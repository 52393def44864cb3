//! What a token is good for.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// What a token is good for. Each includes those before it: whoever may submit may also see what became of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// To look at things, payloads included.
    Read,
    /// To submit work, send signals, do work, and hold locks.
    Work,
    /// To act on what is others': take locks, cancel, discard, change what is in force, see who did what.
    Admin,
}

impl Scope {
    /// All of them, from the least to the most.
    pub const ALL: [Self; 3] = [Self::Read, Self::Work, Self::Admin];

    /// Its name, as it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Work => "work",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// This is no scope.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no scope `{0}`; there are read, work and admin")]
pub struct UnknownScope(String);

impl FromStr for Scope {
    type Err = UnknownScope;

    fn from_str(text: &str) -> Result<Self, UnknownScope> {
        let known = Self::ALL.into_iter().find(|scope| scope.name() == text);
        known.ok_or_else(|| UnknownScope(text.chars().take(32).collect()))
    }
}

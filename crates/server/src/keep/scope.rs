//! Scopes of API tokens.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// The scope of an API token. Each scope includes those before it: a caller that may submit work may also read its
/// state.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Queries, payloads included.
    Read,
    /// Submissions, signals, worker calls and locks.
    Work,
    /// Actions on the work and locks of other callers (forced release, cancel, discard), deployment of policies, and
    /// access to the audit log.
    Admin,
}

impl Scope {
    /// All scopes, the smallest first.
    pub const ALL: [Self; 3] = [Self::Read, Self::Work, Self::Admin];

    /// Returns the scope's name as it is written.
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

/// The text is not the name of a scope.
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

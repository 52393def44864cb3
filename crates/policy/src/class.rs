//! The failure classes.

use core::fmt;
use core::str::FromStr;

/// The class of a failure, which determines whether and how to retry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Class {
    /// The next attempt may succeed: a reset connection, a 503.
    Transient,
    /// The server asks for fewer calls: 429.
    RateLimited,
    /// The server refused the credentials: refresh them once, then retry at once.
    Unauthorized,
    /// The request contradicts the server's state, and a person or program must resolve the conflict. Never
    /// retried.
    Conflict,
    /// Another client holds the resource: a lock, a row version.
    Contended,
    /// A competing operation was first and voids this attempt: a lost vote, a higher ballot.
    Superseded,
    /// No response in time; the outcome is unknown.
    Timeout,
    /// Every attempt will fail: a 404, a bad argument. Never retried.
    Permanent,
}

impl Class {
    /// Every class, in the order of the tables.
    pub const ALL: [Self; 8] = [
        Self::Transient,
        Self::RateLimited,
        Self::Unauthorized,
        Self::Conflict,
        Self::Contended,
        Self::Superseded,
        Self::Timeout,
        Self::Permanent,
    ];

    /// Returns the word used in files, tables, logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::RateLimited => "rate-limited",
            Self::Unauthorized => "unauthorized",
            Self::Conflict => "conflict",
            Self::Contended => "contended",
            Self::Superseded => "superseded",
            Self::Timeout => "timeout",
            Self::Permanent => "permanent",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Class {
    type Err = UnknownClass;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|class| class.name() == word).ok_or(UnknownClass)
    }
}

/// The error for a word that names no class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "not a failure class; the classes are transient, rate-limited, unauthorized, conflict, contended, superseded, timeout and permanent"
)]
pub struct UnknownClass;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back() {
        for class in Class::ALL {
            assert_eq!(class.name().parse(), Ok(class));
        }
        assert_eq!("fatal".parse::<Class>(), Err(UnknownClass));
    }
}

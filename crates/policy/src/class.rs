//! What kind of failure it was.

use core::fmt;
use core::str::FromStr;

/// What kind of failure it was, as far as trying again is concerned.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Class {
    /// It may work next time: a reset connection, a 503.
    Transient,
    /// The other side asks for fewer calls: 429.
    RateLimited,
    /// The credentials were refused: refresh them once, then try at once.
    Unauthorized,
    /// The request contradicts what is there: somebody must decide. Never retried.
    Conflict,
    /// Somebody else holds what is wanted: a lock, a row version.
    Contended,
    /// A rival went first and this try is void: a lost vote, a higher ballot.
    Superseded,
    /// No answer in time; the outcome is unknown.
    Timeout,
    /// It will fail again: a 404, a bad argument. Never retried.
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

    /// The word used in files, tables, logs and metrics.
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

/// The word names no class.
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

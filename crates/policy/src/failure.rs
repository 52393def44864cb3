//! Failures of attempts and their classes.

use core::fmt;
use core::num::NonZeroU32;
use core::str::FromStr;
use core::time::Duration;

/// The properties of a failed attempt that determine the next one.
///
/// ```
/// use holdoff_policy::{Class, Failure};
/// use std::time::Duration;
///
/// let failure = Failure::new(Class::RateLimited).with_retry_after(Duration::from_secs(120));
/// assert_eq!(failure.retry_after(), Some(Duration::from_secs(120)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure {
    class: Class,
    retry_after: Option<Duration>,
    contenders: Option<NonZeroU32>,
    repeatable: bool,
    local: bool,
}

impl Failure {
    /// Creates a failure of this class without further properties.
    #[inline]
    pub const fn new(class: Class) -> Self {
        Self { class, retry_after: None, contenders: None, repeatable: true, local: false }
    }

    /// Creates a failure that may pass by itself.
    #[inline]
    pub const fn transient() -> Self {
        Self::new(Class::Transient)
    }

    /// Creates a failure that will not pass by itself.
    pub const fn permanent() -> Self {
        Self::new(Class::Permanent)
    }

    /// Sets the wait that the server asked for (`Retry-After`).
    #[inline]
    #[must_use]
    pub const fn with_retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Sets the number of contenders, this caller included; 0 means that the number is unknown.
    #[inline]
    #[must_use]
    pub const fn with_contenders(mut self, contenders: u32) -> Self {
        self.contenders = NonZeroU32::new(contenders);
        self
    }

    /// Marks the operation as not repeatable: it may already have had its effect and must not happen twice.
    /// There is no further attempt, even if the class allows one.
    #[must_use]
    pub const fn not_repeatable(mut self) -> Self {
        self.repeatable = false;
        self
    }

    /// Marks the failure as local: the call failed before it reached the server and says nothing about the
    /// server's health.
    #[must_use]
    pub const fn local(mut self) -> Self {
        self.local = true;
        self
    }

    /// Returns whether the failure says nothing about the server's health.
    pub const fn is_local(&self) -> bool {
        self.local
    }

    /// Returns whether another attempt is safe.
    #[inline]
    pub const fn is_repeatable(&self) -> bool {
        self.repeatable
    }

    /// Returns whether the failure has no property that changes the policy's own delay.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        let is_ordinary = !matches!(self.class, Class::Permanent | Class::Conflict | Class::Unauthorized);
        is_ordinary && self.repeatable && self.retry_after.is_none() && self.contenders.is_none()
    }

    /// Returns the failure class.
    #[inline]
    pub const fn class(&self) -> Class {
        self.class
    }

    /// Returns the wait that the server asked for.
    #[inline]
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns the number of contenders, if known.
    #[inline]
    pub const fn contenders(&self) -> Option<NonZeroU32> {
        self.contenders
    }
}

impl From<Class> for Failure {
    fn from(class: Class) -> Self {
        Self::new(class)
    }
}

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

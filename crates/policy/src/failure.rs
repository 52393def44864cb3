//! The failure of an attempt.

use core::num::NonZeroU32;
use core::time::Duration;

use crate::Class;

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
    crowd: Option<NonZeroU32>,
    repeatable: bool,
    local: bool,
}

impl Failure {
    /// Creates a failure of this class without further properties.
    #[inline]
    pub const fn new(class: Class) -> Self {
        Self { class, retry_after: None, crowd: None, repeatable: true, local: false }
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
    pub const fn with_crowd(mut self, contenders: u32) -> Self {
        self.crowd = NonZeroU32::new(contenders);
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
        is_ordinary && self.repeatable && self.retry_after.is_none() && self.crowd.is_none()
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
    pub const fn crowd(&self) -> Option<NonZeroU32> {
        self.crowd
    }
}

impl From<Class> for Failure {
    fn from(class: Class) -> Self {
        Self::new(class)
    }
}

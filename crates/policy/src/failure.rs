//! What went wrong with the last try.

use core::num::NonZeroU32;
use core::time::Duration;

use crate::Class;

/// What went wrong with the last try, as far as the next one is concerned.
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
    /// A failure of this class about which nothing else is known.
    #[inline]
    pub const fn new(class: Class) -> Self {
        Self { class, retry_after: None, crowd: None, repeatable: true, local: false }
    }

    /// A failure that may pass by itself.
    #[inline]
    pub const fn transient() -> Self {
        Self::new(Class::Transient)
    }

    /// A failure that will not pass by itself.
    pub const fn permanent() -> Self {
        Self::new(Class::Permanent)
    }

    /// The other side asked to be left alone for this long (`Retry-After`).
    #[inline]
    #[must_use]
    pub const fn with_retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// This many are contending, this caller included; 0 means that nobody knows.
    #[inline]
    #[must_use]
    pub const fn with_crowd(mut self, contenders: u32) -> Self {
        self.crowd = NonZeroU32::new(contenders);
        self
    }

    /// It may have had its effect already and must not happen twice: there will be no other try, whatever
    /// the class says about the other side.
    #[must_use]
    pub const fn not_repeatable(mut self) -> Self {
        self.repeatable = false;
        self
    }

    /// It failed on this side, before the other was asked: it says nothing about how the other is.
    #[must_use]
    pub const fn local(mut self) -> Self {
        self.local = true;
        self
    }

    /// Whether it says nothing about how the other side is.
    pub const fn is_local(&self) -> bool {
        self.local
    }

    /// Whether another try would be safe.
    #[inline]
    pub const fn is_repeatable(&self) -> bool {
        self.repeatable
    }

    /// Whether it says nothing but "not now".
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        let is_ordinary = !matches!(self.class, Class::Permanent | Class::Conflict | Class::Unauthorized);
        is_ordinary && self.repeatable && self.retry_after.is_none() && self.crowd.is_none()
    }

    /// The kind of failure.
    #[inline]
    pub const fn class(&self) -> Class {
        self.class
    }

    /// How long the other side asked to be left alone.
    #[inline]
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// How many contend, if known.
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

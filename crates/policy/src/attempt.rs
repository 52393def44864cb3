//! The number of an attempt.

use core::fmt;
use core::num::NonZeroU32;

/// The number of an attempt; the first is 1.
///
/// ```
/// use holdoff_policy::Attempt;
///
/// assert_eq!(Attempt::FIRST.get(), 1);
/// assert_eq!(Attempt::FIRST.next(), Attempt::new(2));
/// assert_eq!(Attempt::new(0), Attempt::FIRST, "there is no try before the first");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Attempt(NonZeroU32);

impl Attempt {
    /// The first attempt.
    pub const FIRST: Self = Self(NonZeroU32::MIN);

    /// Creates the attempt with this number; 0 becomes the first attempt.
    #[inline]
    pub const fn new(number: u32) -> Self {
        match NonZeroU32::new(number) {
            Some(number) => Self(number),
            None => Self::FIRST,
        }
    }

    /// Returns the number, at least 1.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0.get()
    }

    /// Returns the next attempt; saturates at `u32::MAX`.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Returns the number of attempts before this attempt.
    #[inline]
    pub(crate) const fn index(self) -> u32 {
        self.0.get() - 1
    }
}

impl Default for Attempt {
    fn default() -> Self {
        Self::FIRST
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

//! Roles: the protocol of an application on a link, and the versions of it that a side speaks.

use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

/// The size limit of a role's name.
const MAX_NAME: usize = 64;

/// The protocol of an application: its name, and the versions that this side speaks. Both sides use the highest version that
/// they have in common, so that nodes can be upgraded one after the other.
///
/// ```
/// use holdoff_net::LinkRole;
///
/// const ROLE: LinkRole = LinkRole::new("clock", 2..=3);
/// assert_eq!(ROLE.to_string(), "clock 2 to 3");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkRole {
    name: Cow<'static, str>,
    versions: RangeInclusive<u16>,
}

/// A role in a hello.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct RoleOffer<'a> {
    pub(crate) name: &'a str,
    pub(crate) oldest: u16,
    pub(crate) newest: u16,
}

impl LinkRole {
    /// Creates a role with the versions that this side speaks.
    pub const fn new(name: &'static str, versions: RangeInclusive<u16>) -> Self {
        Self { name: Cow::Borrowed(name), versions }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.name.len() <= MAX_NAME && !self.versions.is_empty()
    }

    pub(crate) fn offer(&self) -> RoleOffer<'_> {
        RoleOffer { name: &self.name, oldest: *self.versions.start(), newest: *self.versions.end() }
    }

    /// Returns whether this side speaks a version.
    pub(crate) fn speaks(&self, version: u16) -> bool {
        self.versions.contains(&version)
    }
}

impl RoleOffer<'_> {
    pub(crate) fn is_valid(&self) -> bool {
        self.name.len() <= MAX_NAME && self.oldest <= self.newest
    }

    /// Returns the highest version that both sides speak.
    pub(crate) fn common(&self, served: &LinkRole) -> Option<u16> {
        let newest = self.newest.min(*served.versions.end());
        (newest >= self.oldest.max(*served.versions.start())).then_some(newest)
    }
}

/// A role with its first version, which has no other yet.
impl From<&str> for LinkRole {
    fn from(name: &str) -> Self {
        Self { name: Cow::Owned(name.to_owned()), versions: 1..=1 }
    }
}

impl Default for LinkRole {
    fn default() -> Self {
        Self::new("", 1..=1)
    }
}

impl fmt::Display for LinkRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (oldest, newest) = (self.versions.start(), self.versions.end());
        if oldest == newest {
            write!(f, "{} {newest}", self.name)
        } else {
            write!(f, "{} {oldest} to {newest}", self.name)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_use_the_highest_version_in_common() {
        let served = LinkRole::new("ledger", 2..=4);
        let common = |versions| LinkRole::new("ledger", versions).offer().common(&served);
        assert_eq!([1..=1, 1..=2, 3..=3, 1..=9, 5..=9].map(common), [None, Some(2), Some(3), Some(4), None]);
        assert!(!LinkRole::new("ledger", RangeInclusive::new(2, 1)).is_valid());
    }
}

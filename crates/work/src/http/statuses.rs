//! The statuses that a step expects.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// One status or a range: `200`, `"2xx"` or `"200-204"`.
///
/// ```
/// use holdoff_work::Statuses;
///
/// assert_eq!("2xx".parse(), Ok(Statuses::from(200..=299)));
/// assert_eq!("200-204".parse(), Ok(Statuses::from(200..=204)));
/// assert!("often".parse::<Statuses>().is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Statuses {
    first: u16,
    last: u16,
}

impl Statuses {
    /// The expected statuses of a step that names none.
    pub(super) const SUCCESS: Self = Self { first: 200, last: 299 };

    pub(super) fn contains(self, status: u16) -> bool {
        (self.first..=self.last).contains(&status)
    }

    /// Returns whether the range contains a redirect, which then must not be followed.
    pub(super) fn has_redirect(self) -> bool {
        self.first <= 399 && self.last >= 300
    }

    /// Returns whether all statuses can end an exchange.
    pub(super) fn is_valid(self) -> bool {
        self.first >= 200 && self.first <= self.last && self.last <= 599
    }
}

impl From<u16> for Statuses {
    fn from(status: u16) -> Self {
        Self { first: status, last: status }
    }
}

impl From<RangeInclusive<u16>> for Statuses {
    fn from(range: RangeInclusive<u16>) -> Self {
        Self { first: *range.start(), last: *range.end() }
    }
}

impl FromStr for Statuses {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str =
            "not a status from 200 to 599, a hundred such as \"2xx\" or a range such as \"200-204\"";
        let number = |text: &str| text.trim().parse::<u16>().map_err(|_| WRONG);
        let statuses = if let Some(hundred) = text.strip_suffix("xx") {
            let first = number(hundred)?.checked_mul(100).ok_or(WRONG)?;
            Self { first, last: first.saturating_add(99) }
        } else if let Some((first, last)) = text.split_once('-') {
            Self { first: number(first)?, last: number(last)? }
        } else {
            Self::from(number(text)?)
        };
        if statuses.is_valid() { Ok(statuses) } else { Err(WRONG) }
    }
}

impl fmt::Display for Statuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, last } = *self;
        if first == last {
            write!(f, "{first}")
        } else if first.is_multiple_of(100) && last == first.saturating_add(99) {
            write!(f, "{}xx", first / 100)
        } else {
            write!(f, "{first}-{last}")
        }
    }
}

impl Serialize for Statuses {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.first == self.last {
            serializer.serialize_u16(self.first)
        } else {
            serializer.collect_str(self)
        }
    }
}

impl<'de> Deserialize<'de> for Statuses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberOrText)
    }
}

struct NumberOrText;

impl Visitor<'_> for NumberOrText {
    type Value = Statuses;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a status such as 200, \"2xx\" or \"200-204\"")
    }

    fn visit_u64<E: de::Error>(self, status: u64) -> Result<Statuses, E> {
        self.visit_str(&status.to_string())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Statuses, E> {
        text.parse().map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_read_back() {
        for text in ["200", "\"2xx\"", "\"200-204\"", "\"200-599\""] {
            let statuses: Statuses = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&statuses).unwrap(), text);
        }
        for text in
            ["199", "600", "\"6xx\"", "\"999xx\"", "\"204-200\"", "\"xx\"", "\"\"", "true", "-200", "200.5"]
        {
            assert!(serde_json::from_str::<Statuses>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn redirects_are_seen() {
        assert!(Statuses::from(302).has_redirect());
        assert!(Statuses::from(200..=599).has_redirect());
        assert!(!Statuses::SUCCESS.has_redirect());
        assert!(!Statuses::from(400).has_redirect());
    }
}

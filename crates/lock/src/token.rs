//! Fencing tokens.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use holdoff_policy::as_micros_u64;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A fencing token: a number that only grows for a key. A resource that stores the highest token it has seen, and
/// rejects lower tokens, is safe from a holder that was paused and does not know that its lease has expired.
///
/// A token is the time of its grant, in microseconds since 1970 on the store's wall clock, or one more than the previous
/// token of its key if that is higher. If a store loses grants in a crash, a failover or a restore from a backup, its
/// clock has advanced since, and every later token is above the lost ones.
///
/// In JSON it is a string of decimal digits, because JavaScript rounds numbers above 2^53.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token(u64);

/// The base of the tokens of a whole store at the time of a grant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TokenBase {
    /// The highest token of all pruned locks, or a higher one that an operator has set.
    pub(crate) floor: Token,
    /// The time since 1970 on the store's wall clock.
    pub(crate) wall: Duration,
}

impl Token {
    /// The highest floor. An engine stores tokens in signed columns of 64 bits, and grants above a floor must fit.
    pub const MAX_FLOOR: Self = Self(1 << 62);

    /// Returns the token with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the next token to grant: above this token and above the floor, and not before the store's time.
    pub(crate) fn next(self, base: TokenBase) -> Self {
        let now = as_micros_u64(base.wall).min(Self::MAX_FLOOR.0);
        Self(self.0.max(base.floor.0).saturating_add(1).max(now))
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A text that is not a fencing token.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{0:?} is not a fencing token: expected a decimal number below 2^63, without a sign or leading zeros"
)]
pub struct ParseTokenError(String);

impl FromStr for Token {
    type Err = ParseTokenError;

    /// Reads the digits that [`Display`](fmt::Display) writes. No other text of the same number is valid.
    fn from_str(text: &str) -> Result<Self, ParseTokenError> {
        let number = text.parse().ok().filter(|number: &u64| i64::try_from(*number).is_ok());
        number
            .filter(|number| number.to_string() == text)
            .map(Self)
            .ok_or_else(|| ParseTokenError(text.chars().take(40).collect()))
    }
}

impl Serialize for Token {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn base(floor: u64, wall_us: u64) -> TokenBase {
        TokenBase { floor: Token::new(floor), wall: Duration::from_micros(wall_us) }
    }

    #[test]
    fn a_token_is_above_the_previous_token_and_the_floor_and_not_before_the_time() {
        let first = Token::new(0).next(base(0, 1000));
        assert_eq!(first.get(), 1000);
        assert_eq!(first.next(base(0, 1000)).get(), 1001, "two grants in one microsecond");
        assert_eq!(first.next(base(0, 5)).get(), 1001, "the clock was set back");
        assert_eq!(first.next(base(2000, 1500)).get(), 2001);
        assert_eq!(first.next(base(0, 3000)).get(), 3000);
    }

    #[test]
    fn a_clock_that_is_far_ahead_leaves_room_for_later_tokens() {
        let token = Token::new(0).next(TokenBase { floor: Token::new(0), wall: Duration::MAX });
        assert_eq!(token, Token::MAX_FLOOR);
        assert!(i64::try_from(token.next(base(Token::MAX_FLOOR.get(), 0)).get()).is_ok());
    }

    #[test]
    fn a_token_is_a_string_of_digits_in_json() {
        let token = Token::new((1 << 53) + 1);
        assert_eq!(serde_json::to_string(&token).unwrap(), "\"9007199254740993\"");
        assert_eq!(serde_json::from_str::<Token>("\"9007199254740993\"").unwrap(), token);
        for wrong in
            ["7", "\"\"", "\"-1\"", "\"+1\"", "\"007\"", "\"1e3\"", "\" 1\"", "\"9223372036854775808\""]
        {
            assert!(serde_json::from_str::<Token>(wrong).is_err(), "{wrong}");
        }
        let error = "x".repeat(1000).parse::<Token>().unwrap_err().to_string();
        assert!(error.len() < 200, "{error}");
    }
}

//! Fencing tokens.

use std::fmt;

/// A fencing token: a number that only grows for a key. A resource that stores the highest token it has seen, and
/// rejects lower tokens, is safe from a holder that was paused and does not know that its lease has expired.
///
/// The high bits are the store's fencing epoch, which is raised after a restore from a backup. Every token granted
/// after the backup was taken is therefore below every token granted after the restore.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Token(u64);

/// The bits that count grants within an epoch: a million a second for twelve days, or a thousand for 34 years, per key.
const COUNTER_BITS: u32 = 40;

impl Token {
    /// Returns the token with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the fencing epoch in which the token was granted.
    pub const fn epoch(self) -> u64 {
        self.0 >> COUNTER_BITS
    }

    /// Returns the lowest token of an epoch.
    pub(crate) const fn first_of(epoch: u64) -> Self {
        Self((epoch << COUNTER_BITS) + 1)
    }

    /// Returns the next token to grant in this epoch, above this token and above all pruned tokens.
    pub(crate) fn next(self, epoch: u64, floor: Self) -> Self {
        Self(self.0.max(floor.0).saturating_add(1)).max(Self::first_of(epoch))
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_of_a_new_epoch_is_above_all_earlier_tokens() {
        let zero = Token::new(0);
        let first = zero.next(0, zero);
        assert_eq!(first.get(), 1);
        assert_eq!(first.next(0, zero).get(), 2);
        assert_eq!(first.next(0, Token::new(9)).get(), 10, "the token is above the floor");
        let raised = Token::new(1_000_000).next(1, zero);
        assert_eq!(raised, Token::first_of(1));
        assert_eq!(raised.next(1, zero).get(), raised.get() + 1);
        assert!(raised > Token::new((1 << 40) - 1));
    }
}

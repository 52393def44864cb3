//! A value that checks fencing tokens.

use std::sync::{Mutex, PoisonError};

use super::Stale;
use crate::Token;

/// A value in memory that rejects updates with a lower token than the highest it has seen.
///
/// Every protected resource has to do the same: store the highest token, and reject lower tokens.
///
/// ```
/// use holdoff_lock::{FencedCell, Token};
///
/// let balance = FencedCell::new(10);
/// let (paused, successor) = (Token::new(1), Token::new(2));
/// assert_eq!(balance.update(successor, |value| *value += 1), Ok(()));
/// assert!(balance.update(paused, |value| *value = 0).is_err(), "its lease was over long ago");
/// assert_eq!(balance.read(|value| *value), 11);
/// ```
#[derive(Debug)]
pub struct FencedCell<T> {
    inside: Mutex<(Token, T)>,
}

impl<T> FencedCell<T> {
    /// Returns a cell that has seen no token.
    pub const fn new(value: T) -> Self {
        Self { inside: Mutex::new((Token::new(0), value)) }
    }

    /// Changes the value, unless the cell has seen a higher token.
    pub fn update<R>(&self, token: Token, change: impl FnOnce(&mut T) -> R) -> Result<R, Stale> {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        let (seen, value) = &mut *inside;
        if token < *seen {
            return Err(Stale { token, seen: *seen });
        }
        *seen = token;
        Ok(change(value))
    }

    /// Reads the value. A read needs no lock and no token.
    pub fn read<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.inside.lock().unwrap_or_else(PoisonError::into_inner).1)
    }

    /// Returns the highest token seen.
    pub fn seen(&self) -> Token {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_holder_may_change_it() {
        let cell = FencedCell::new(String::new());
        assert!(cell.update(Token::new(5), |text| text.push('a')).is_ok());
        assert!(cell.update(Token::new(5), |text| text.push('b')).is_ok(), "one holder may write often");
        let stale = cell.update(Token::new(4), String::clear).unwrap_err();
        assert_eq!(stale, Stale { token: Token::new(4), seen: Token::new(5) });
        assert_eq!((cell.read(String::clone), cell.seen()), ("ab".to_owned(), Token::new(5)));
    }
}

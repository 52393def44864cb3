//! A value that looks at tokens.

use std::sync::{Mutex, PoisonError};

use super::Stale;
use crate::Token;

/// A value in memory that refuses those who come with an older token than it has seen.
///
/// This is what a protected resource has to do, wherever it lives: remember the highest token, and refuse lower ones.
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
    /// A value that has seen no token.
    pub const fn new(value: T) -> Self {
        Self { inside: Mutex::new((Token::new(0), value)) }
    }

    /// Changes the value, unless a higher token was here.
    pub fn update<R>(&self, token: Token, change: impl FnOnce(&mut T) -> R) -> Result<R, Stale> {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        let (seen, value) = &mut *inside;
        if token < *seen {
            return Err(Stale { token, seen: *seen });
        }
        *seen = token;
        Ok(change(value))
    }

    /// Looks at the value: reading needs no lock.
    pub fn read<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.inside.lock().unwrap_or_else(PoisonError::into_inner).1)
    }

    /// The highest token seen.
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

//! The position of the parser, and the problems that it reports there.

use holdoff_policy::Problems;

use super::Parser;
use crate::machine::facts::lexer::{Token, problem};

impl Parser<'_> {
    pub(super) fn token(&self) -> &Token {
        self.tokens.get(self.at).map_or(&Token::End, |(token, _)| token)
    }

    pub(super) fn token_after(&self) -> &Token {
        self.tokens.get(self.at + 1).map_or(&Token::End, |(token, _)| token)
    }

    pub(super) fn is_at(&self, sign: &str) -> bool {
        matches!(self.token(), Token::Sign(found) if *found == sign)
    }

    pub(super) fn passes(&mut self, sign: &str) -> bool {
        let is_here = self.is_at(sign);
        self.at += usize::from(is_here);
        is_here
    }

    pub(super) fn pass(&mut self, sign: &str, expected: &str) -> Result<(), Problems> {
        if self.passes(sign) { Ok(()) } else { Err(self.unexpected(expected)) }
    }

    /// Returns a problem at the current token.
    pub(super) fn problem(&self, message: String, expected: &str) -> Problems {
        let end = self.text.len()..self.text.len();
        problem(self.text, self.tokens.get(self.at).map_or(&end, |(_, span)| span), message, expected)
    }

    pub(super) fn unexpected(&self, expected: &str) -> Problems {
        let message = match self.token() {
            Token::End => "the goal ends here".to_owned(),
            Token::Word(word) => format!("`{word}` does not belong here"),
            Token::Variable(name) => format!("`?{name}` does not belong here"),
            Token::Number(number) => format!("{number} does not belong here"),
            Token::Text(_) => "a text does not belong here".to_owned(),
            Token::Sign(sign) => format!("`{sign}` does not belong here"),
        };
        self.problem(message, expected)
    }
}

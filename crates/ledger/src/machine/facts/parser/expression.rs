//! The parser of values and calculations.

use holdoff_policy::Problems;

use super::Parser;
use crate::machine::facts::goal::{Expression, Operator};
use crate::machine::facts::lexer::Token;
use crate::machine::limits::DEPTH;
use crate::machine::{Symbol, Value};

const ONE: &str = "a value: an integer, a word, a text in quotes or a variable such as `?a`";

/// An expression and its nesting depth.
type Deep = (Expression, usize);

impl Parser<'_> {
    pub(super) fn expression(&mut self) -> Result<Expression, Problems> {
        self.sum().map(|(expression, _)| expression)
    }

    fn sum(&mut self) -> Result<Deep, Problems> {
        self.chain(|operator| !operator.is_tight(), Self::product)
    }

    fn product(&mut self) -> Result<Deep, Problems> {
        self.chain(Operator::is_tight, Self::one)
    }

    /// Parses operands with operators between them, from left to right.
    fn chain(
        &mut self,
        is_between: fn(Operator) -> bool,
        side: fn(&mut Self) -> Result<Deep, Problems>,
    ) -> Result<Deep, Problems> {
        let (mut left, mut depth) = side(self)?;
        let known = || Operator::ALL.into_iter().filter(|operator| is_between(*operator));
        while let Some(operator) = known().find(|operator| self.is_at(operator.sign())) {
            let place = self.at;
            self.at += 1;
            let (right, right_depth) = side(self)?;
            depth = depth.max(right_depth) + 1;
            if depth > DEPTH {
                self.at = place;
                return Err(self.too_deep());
            }
            left = Expression::Calculation(Box::new(left), operator, Box::new(right));
        }
        Ok((left, depth))
    }

    fn one(&mut self) -> Result<Deep, Problems> {
        let one = match self.token().clone() {
            Token::Sign("(") => return self.in_brackets(),
            Token::Sign("-") => return self.negative(),
            Token::Number(number) => Expression::Value(Value::Integer(self.integer(i128::from(number))?)),
            Token::Word(word) => Expression::Value(Value::Symbol(word)),
            Token::Text(text) => Expression::Value(Value::Text(text)),
            Token::Variable(name) => {
                let Some(place) = self.variables.iter().position(|known| *known == name) else {
                    return Err(self.unknown(&name));
                };
                Expression::Variable(place)
            }
            Token::Sign("_") => {
                return Err(self.problem(
                    "`_` has no value".to_owned(),
                    "a value or a variable; `_` matches anything, as a whole value of a condition's fact",
                ));
            }
            Token::Sign(_) | Token::End => return Err(self.unexpected(ONE)),
        };
        self.at += 1;
        Ok((one, 0))
    }

    fn in_brackets(&mut self) -> Result<Deep, Problems> {
        if self.brackets == DEPTH {
            return Err(self.too_deep());
        }
        self.brackets += 1;
        self.at += 1;
        let inside = self.sum()?;
        self.pass(")", "an operator, or `)`")?;
        self.brackets -= 1;
        Ok(inside)
    }

    fn negative(&mut self) -> Result<Deep, Problems> {
        self.at += 1;
        let Token::Number(number) = *self.token() else {
            return Err(self.unexpected("an integer after `-`; to negate something, write `0 - ?a`"));
        };
        let number = self.integer(-i128::from(number))?;
        self.at += 1;
        Ok((Expression::Value(Value::Integer(number)), 0))
    }

    fn integer(&self, number: i128) -> Result<i64, Problems> {
        let too_large = |_| self.problem(format!("{number} does not fit 64 bits"), "an integer of 64 bits");
        i64::try_from(number).map_err(too_large)
    }

    fn unknown(&self, name: &Symbol) -> Problems {
        let expected = "a variable that a fact before this one has; in `not`, `_` matches anything";
        self.problem(format!("nothing gives ?{name} a value before this"), expected)
    }

    fn too_deep(&self) -> Problems {
        self.problem("this nests too deep".to_owned(), &format!("at most {DEPTH} levels"))
    }
}

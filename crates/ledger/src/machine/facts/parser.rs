//! Parses a goal, and rejects goals that could not be executed.
//!
//! ```text
//! goal       = [ ( "all" | "only" ) ":" ] [ condition { "," condition } ] [ "=>" effect { "," effect } ]
//! condition  = pattern | "not" pattern | sum ( "=" | "!=" | "<" | "<=" | ">" | ">=" ) sum
//! pattern    = word "(" [ term { "," term } ] ")"         term = "_" | sum
//! effect     = ( "-" | "+" ) word "(" [ sum { "," sum } ] ")"
//! sum        = product { ( "+" | "-" ) product }          product = one { ( "*" | "/" | "%" ) one }
//! one        = [ "-" ] number | word | text | "?" word | "(" sum ")"
//! ```

use std::ops::Range;

use holdoff_policy::Problems;

use super::goal::{Comparison, Condition, Effect, Expression, Goal, Kind, Operator, Pattern, Take, Term};
use super::lexer::{Token, problem, tokens};
use crate::machine::limits::{ARGUMENTS, CONDITIONS, DEPTH, EFFECTS, GOAL_BYTES, VARIABLES};
use crate::machine::{Symbol, Value};

const CONDITION: &str = "a condition, such as `balance(alice, ?a)`, `not locked(alice)` or `?a >= 10`";
const EFFECT: &str = "an effect, such as `-balance(alice, ?a)` or `+balance(alice, 20)`";

pub(super) fn parse(text: &str) -> Result<Goal, Problems> {
    let too_long = |message: String| {
        Err(problem("", &(0..0), message, &format!("at most {GOAL_BYTES}, also when it is printed")))
    };
    if text.len() > GOAL_BYTES {
        return too_long(format!("the goal has {} bytes", text.len()));
    }
    let tokens = tokens(text)?;
    let goal = Parser { text, tokens, at: 0, variables: Vec::new(), brackets: 0 }.goal()?;
    // A goal is serialized as its printed text, which may have more spaces than the original and must be readable
    // again.
    match goal.to_string().len() {
        ..=GOAL_BYTES => Ok(goal),
        printed => too_long(format!("the goal has {printed} bytes when it is printed")),
    }
}

struct Parser<'t> {
    text: &'t str,
    tokens: Vec<(Token, Range<usize>)>,
    at: usize,
    variables: Vec<Symbol>,
    /// The number of open brackets at the current position.
    brackets: usize,
}

impl Parser<'_> {
    fn goal(mut self) -> Result<Goal, Problems> {
        let take = self.take();
        let mut conditions = Vec::new();
        if !self.is_at("=>") {
            conditions = self.list(CONDITIONS, "conditions", Self::condition)?;
        }
        let mut effects = Vec::new();
        if self.passes("=>") {
            effects = self.list(EFFECTS, "effects", Self::effect)?;
        }
        match self.token() {
            Token::End => Ok(Goal { take, variables: self.variables, conditions, effects }),
            _ if effects.is_empty() => {
                Err(self.unexpected("`,` and a condition, `=>` and effects, or the end"))
            }
            _ => Err(self.unexpected("`,` and an effect, or the end")),
        }
    }

    fn take(&mut self) -> Take {
        let named = |take: &Take| match (self.token(), self.token_after()) {
            (Token::Word(word), Token::Sign(":")) => Some(word.as_str()) == take.word(),
            _ => false,
        };
        let Some(take) = [Take::Only, Take::All].into_iter().find(named) else { return Take::First };
        self.at += 2;
        take
    }

    fn condition(&mut self) -> Result<Condition, Problems> {
        match (self.token(), self.token_after()) {
            (Token::Word(_), Token::Sign("(")) => {
                let (name, terms) = self.call(Self::term_that_may_bind)?;
                Ok(Condition::There(Pattern { name, terms }))
            }
            (Token::Word(word), Token::Word(_)) if word.as_str() == "not" => {
                self.at += 1;
                let (name, terms) = self.call(Self::term)?;
                Ok(Condition::Absent(Pattern { name, terms }))
            }
            (
                Token::Sign("-" | "(")
                | Token::Word(_)
                | Token::Variable(_)
                | Token::Number(_)
                | Token::Text(_),
                _,
            ) => {
                let left = self.expression()?;
                let comparison = self.comparison()?;
                Ok(Condition::Holds(left, comparison, self.expression()?))
            }
            (Token::Sign("+"), _) => Err(self.unexpected("`=>` before the effects, or a condition")),
            _ => Err(self.unexpected(CONDITION)),
        }
    }

    fn comparison(&mut self) -> Result<Comparison, Problems> {
        let found = Comparison::ALL.into_iter().find(|comparison| self.passes(comparison.sign()));
        found.ok_or_else(|| self.unexpected("a comparison: `=`, `!=`, `<`, `<=`, `>` or `>=`"))
    }

    fn effect(&mut self) -> Result<Effect, Problems> {
        let kind = match self.token() {
            Token::Sign("-") => Kind::Retract,
            Token::Sign("+") => Kind::Assert,
            _ => return Err(self.unexpected(EFFECT)),
        };
        self.at += 1;
        let (name, arguments) = self.call(Self::expression)?;
        Ok(Effect { kind, name, arguments })
    }

    /// Parses `name(argument, argument)`.
    fn call<T>(
        &mut self,
        argument: impl FnMut(&mut Self) -> Result<T, Problems>,
    ) -> Result<(Symbol, Vec<T>), Problems> {
        let Token::Word(name) = self.token().clone() else {
            return Err(self.unexpected("a fact, such as `balance(alice, 20)`"));
        };
        self.at += 1;
        self.pass("(", "`(` and the fact's values")?;
        if self.passes(")") {
            return Ok((name, Vec::new()));
        }
        let arguments = self.list(ARGUMENTS, "arguments", argument)?;
        self.pass(")", "`,` and another value, or `)`")?;
        Ok((name, arguments))
    }

    /// Parses a list of items with commas between them.
    fn list<T>(
        &mut self,
        most: usize,
        what: &str,
        mut one: impl FnMut(&mut Self) -> Result<T, Problems>,
    ) -> Result<Vec<T>, Problems> {
        let mut list = vec![one(self)?];
        while self.passes(",") {
            if list.len() == most {
                return Err(
                    self.problem(format!("there are more than {most} {what}"), &format!("at most {most}"))
                );
            }
            list.push(one(self)?);
        }
        Ok(list)
    }

    /// Parses a term. A variable that occurs here alone and for the first time is bound here.
    fn term_that_may_bind(&mut self) -> Result<Term, Problems> {
        let ends = matches!(self.token_after(), Token::Sign("," | ")"));
        let Token::Variable(name) = self.token() else { return self.term() };
        if !ends || self.variables.contains(name) {
            return self.term();
        }
        let name = name.clone();
        if self.variables.len() == VARIABLES {
            let message = format!("there are more than {VARIABLES} variables");
            return Err(self.problem(message, &format!("at most {VARIABLES}; `_` matches anything")));
        }
        self.at += 1;
        self.variables.push(name);
        Ok(Term::Is(Expression::Variable(self.variables.len() - 1)))
    }

    fn term(&mut self) -> Result<Term, Problems> {
        if self.passes("_") { Ok(Term::Any) } else { Ok(Term::Is(self.expression()?)) }
    }
}

impl Parser<'_> {
    fn token(&self) -> &Token {
        self.tokens.get(self.at).map_or(&Token::End, |(token, _)| token)
    }

    fn token_after(&self) -> &Token {
        self.tokens.get(self.at + 1).map_or(&Token::End, |(token, _)| token)
    }

    fn is_at(&self, sign: &str) -> bool {
        matches!(self.token(), Token::Sign(found) if *found == sign)
    }

    fn passes(&mut self, sign: &str) -> bool {
        let is_here = self.is_at(sign);
        self.at += usize::from(is_here);
        is_here
    }

    fn pass(&mut self, sign: &str, expected: &str) -> Result<(), Problems> {
        if self.passes(sign) { Ok(()) } else { Err(self.unexpected(expected)) }
    }

    /// Returns a problem at the current token.
    fn problem(&self, message: String, expected: &str) -> Problems {
        let end = self.text.len()..self.text.len();
        problem(self.text, self.tokens.get(self.at).map_or(&end, |(_, span)| span), message, expected)
    }

    fn unexpected(&self, expected: &str) -> Problems {
        let message = match self.token() {
            Token::End => "unexpected end of the goal".to_owned(),
            Token::Word(word) => format!("unexpected `{word}`"),
            Token::Variable(name) => format!("unexpected `?{name}`"),
            Token::Number(number) => format!("unexpected {number}"),
            Token::Text(_) => "unexpected text".to_owned(),
            Token::Sign(sign) => format!("unexpected `{sign}`"),
        };
        self.problem(message, expected)
    }
}

const ONE: &str = "a value: an integer, a word, a text in quotes or a variable such as `?a`";

/// An expression and its nesting depth.
type Deep = (Expression, usize);

impl Parser<'_> {
    fn expression(&mut self) -> Result<Expression, Problems> {
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
            let start = self.at;
            self.at += 1;
            let (right, right_depth) = side(self)?;
            depth = depth.max(right_depth) + 1;
            if depth > DEPTH {
                self.at = start;
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
                let Some(index) = self.variables.iter().position(|known| *known == name) else {
                    return Err(self.unknown(&name));
                };
                Expression::Variable(index)
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
        self.problem(format!("?{name} has no value here"), expected)
    }

    fn too_deep(&self) -> Problems {
        self.problem("the calculation nests too deep".to_owned(), &format!("at most {DEPTH} levels"))
    }
}

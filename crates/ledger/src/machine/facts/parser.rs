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

mod cursor;
mod expression;

use std::ops::Range;

use holdoff_policy::Problems;

use super::goal::{Comparison, Condition, Effect, Expression, Goal, Kind, Pattern, Take, Term};
use super::lexer::{Token, problem, tokens};
use crate::machine::Symbol;
use crate::machine::limits::{ARGUMENTS, CONDITIONS, EFFECTS, GOAL_BYTES, VARIABLES};

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

//! A parsed goal, and its printed text, which the parser reads back as the same goal.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use holdoff_policy::Problems;
use serde::{Deserialize, Serialize};

use super::parser;
use crate::machine::{Symbol, Value};

/// Conditions, and the facts to retract and assert if they hold.
///
/// Every `Goal` can be executed: the parser rejects a text with a mistake. A goal is serialized as its text.
///
/// ```
/// use holdoff_ledger::machine::Goal;
///
/// let goal: Goal = "job(?id,waiting) => -job(?id,waiting), +job(?id,running)".parse()?;
/// assert_eq!(goal.to_string(), "job(?id, waiting) => -job(?id, waiting), +job(?id, running)");
///
/// let problems = "job(?id, waiting) => +job(?di, running)".parse::<Goal>().unwrap_err();
/// assert!(problems.to_string().starts_with("goal:1:27: ?di has no value"));
/// # Ok::<(), holdoff_policy::Problems>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Goal {
    pub(super) take: Take,
    /// The names of the variables, in the order of their first occurrence.
    pub(super) variables: Vec<Symbol>,
    pub(super) conditions: Vec<Condition>,
    pub(super) effects: Vec<Effect>,
}

/// Which matches the goal takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Take {
    First,
    Only,
    All,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Condition {
    There(Pattern),
    Absent(Pattern),
    Holds(Expression, Comparison, Expression),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Pattern {
    pub(super) name: Symbol,
    pub(super) terms: Vec<Term>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Term {
    Any,
    /// The first occurrence of a variable binds its value.
    Is(Expression),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Expression {
    Value(Value),
    /// The variable, by its position in the goal's list.
    Variable(usize),
    Calculation(Box<Expression>, Operator, Box<Expression>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operator {
    Plus,
    Minus,
    Times,
    Over,
    Remainder,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Comparison {
    Equal,
    Unequal,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Effect {
    pub(super) kind: Kind,
    pub(super) name: Symbol,
    pub(super) arguments: Vec<Expression>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Retract,
    Assert,
}

impl Operator {
    pub(super) const ALL: [Self; 5] = [Self::Plus, Self::Minus, Self::Times, Self::Over, Self::Remainder];

    pub(super) const fn sign(self) -> &'static str {
        match self {
            Self::Plus => "+",
            Self::Minus => "-",
            Self::Times => "*",
            Self::Over => "/",
            Self::Remainder => "%",
        }
    }

    /// Returns true if the operator binds more tightly than plus and minus.
    pub(super) const fn is_tight(self) -> bool {
        matches!(self, Self::Times | Self::Over | Self::Remainder)
    }

    /// Returns `None` if there is no result in 64 bits.
    pub(super) const fn calculate(self, left: i64, right: i64) -> Option<i64> {
        match self {
            Self::Plus => left.checked_add(right),
            Self::Minus => left.checked_sub(right),
            Self::Times => left.checked_mul(right),
            Self::Over => left.checked_div(right),
            Self::Remainder => left.checked_rem(right),
        }
    }
}

impl Comparison {
    pub(super) const ALL: [Self; 6] =
        [Self::Equal, Self::Unequal, Self::Less, Self::AtMost, Self::Greater, Self::AtLeast];

    pub(super) const fn sign(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::Unequal => "!=",
            Self::Less => "<",
            Self::AtMost => "<=",
            Self::Greater => ">",
            Self::AtLeast => ">=",
        }
    }
}

impl Take {
    /// Returns the keyword at the beginning of the goal.
    pub(super) const fn word(self) -> Option<&'static str> {
        match self {
            Self::First => None,
            Self::Only => Some("only"),
            Self::All => Some("all"),
        }
    }
}

impl FromStr for Goal {
    type Err = Problems;

    fn from_str(text: &str) -> Result<Self, Problems> {
        parser::parse(text)
    }
}

impl TryFrom<String> for Goal {
    type Error = Problems;

    fn try_from(text: String) -> Result<Self, Problems> {
        text.parse()
    }
}

impl From<Goal> for String {
    fn from(goal: Goal) -> Self {
        goal.to_string()
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(f, self)
    }
}

fn print(f: &mut Formatter<'_>, goal: &Goal) -> fmt::Result {
    if let Some(word) = goal.take.word() {
        write!(f, "{word}: ")?;
    }
    list(f, goal.conditions.iter().map(|condition| In(goal, condition)))?;
    if !goal.effects.is_empty() {
        f.write_str(if goal.conditions.is_empty() { "=> " } else { " => " })?;
        list(f, goal.effects.iter().map(|effect| In(goal, effect)))?;
    }
    Ok(())
}

/// Writes `name(argument, argument)`.
pub(super) fn call<T: Display>(
    f: &mut Formatter<'_>,
    name: &Symbol,
    arguments: impl IntoIterator<Item = T>,
) -> fmt::Result {
    write!(f, "{name}(")?;
    list(f, arguments)?;
    f.write_str(")")
}

fn list<T: Display>(f: &mut Formatter<'_>, items: impl IntoIterator<Item = T>) -> fmt::Result {
    for (index, item) in items.into_iter().enumerate() {
        write!(f, "{}{item}", if index > 0 { ", " } else { "" })?;
    }
    Ok(())
}

/// A part of a goal, together with the goal, which has the names of the variables.
struct In<'a, T>(&'a Goal, &'a T);

impl<'a, T> In<'a, T> {
    fn all<U>(&self, parts: &'a [U]) -> impl Iterator<Item = In<'a, U>> {
        let goal = self.0;
        parts.iter().map(move |part| In(goal, part))
    }
}

impl Display for In<'_, Condition> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.1 {
            Condition::There(pattern) => In(self.0, pattern).fmt(f),
            Condition::Absent(pattern) => write!(f, "not {}", In(self.0, pattern)),
            Condition::Holds(left, comparison, right) => {
                write!(f, "{} {} {}", In(self.0, left), comparison.sign(), In(self.0, right))
            }
        }
    }
}

impl Display for In<'_, Pattern> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        call(f, &self.1.name, self.all(&self.1.terms))
    }
}

impl Display for In<'_, Term> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.1 {
            Term::Any => f.write_str("_"),
            Term::Is(expression) => In(self.0, expression).fmt(f),
        }
    }
}

impl Display for In<'_, Effect> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self.1.kind {
            Kind::Retract => "-",
            Kind::Assert => "+",
        })?;
        call(f, &self.1.name, self.all(&self.1.arguments))
    }
}

impl Display for In<'_, Expression> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.1 {
            Expression::Value(value) => value.fmt(f),
            Expression::Variable(index) => match self.0.variables.get(*index) {
                Some(name) => write!(f, "?{name}"),
                None => f.write_str("_"),
            },
            Expression::Calculation(left, operator, right) => {
                side(f, &In(self.0, left), operator.is_tight() && is_loose(left))?;
                write!(f, " {} ", operator.sign())?;
                // Operators are left-associative, so an operand on the left needs no brackets for its order.
                let stands_alone = !matches!(**right, Expression::Calculation(..));
                let needs_brackets = !stands_alone && (operator.is_tight() || is_loose(right));
                side(f, &In(self.0, right), needs_brackets)
            }
        }
    }
}

/// Returns true if the expression is a sum or difference, which needs brackets inside a product.
fn is_loose(expression: &Expression) -> bool {
    matches!(expression, Expression::Calculation(_, operator, _) if !operator.is_tight())
}

fn side(f: &mut Formatter<'_>, expression: &In<'_, Expression>, in_brackets: bool) -> fmt::Result {
    if in_brackets { write!(f, "({expression})") } else { expression.fmt(f) }
}

//! A parsed goal.

use std::fmt;
use std::str::FromStr;

use holdoff_policy::Problems;
use serde::{Deserialize, Serialize};

use super::{parser, print};
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
/// assert!(problems.to_string().starts_with("goal:1:27: nothing gives ?di a value"));
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
        print::goal(f, self)
    }
}

//! Formats goals as text. The parser reads the text back as the same goal.

use std::fmt::{self, Display, Formatter};

use super::goal::{Condition, Effect, Expression, Goal, Kind, Pattern, Term};
use crate::machine::Symbol;

pub(super) fn goal(f: &mut Formatter<'_>, goal: &Goal) -> fmt::Result {
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
            Expression::Variable(place) => match self.0.variables.get(*place) {
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

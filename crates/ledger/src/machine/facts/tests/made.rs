//! Generators of goals and facts.

use std::collections::BTreeSet;

use fastrand::Rng;

use crate::machine::facts::Fact;
use crate::machine::facts::goal::{
    Comparison, Condition, Effect, Expression, Goal, Kind, Operator, Pattern, Take, Term,
};
use crate::machine::{Symbol, Value};

/// A source of values and operators.
pub(super) trait Values: Copy {
    fn value(self, rng: &mut Rng) -> Value;

    fn operator(self, rng: &mut Rng) -> Operator;
}

/// A small range of values, so that goals match, without values that cannot be compared or calculated with.
#[derive(Clone, Copy)]
pub(super) struct Plain;

/// All values.
#[derive(Clone, Copy)]
pub(super) struct Odd;

impl Values for Plain {
    fn value(self, rng: &mut Rng) -> Value {
        Value::Integer(rng.i64(0..3))
    }

    fn operator(self, rng: &mut Rng) -> Operator {
        [Operator::Plus, Operator::Minus][rng.usize(0..2)]
    }
}

impl Values for Odd {
    fn value(self, rng: &mut Rng) -> Value {
        let words = ["not", "all", "only", "a", "Z_9"];
        match rng.u8(0..5) {
            0 => Value::Integer(rng.i64(..)),
            1 => Value::Integer([i64::MIN, i64::MAX, -1, 0][rng.usize(0..4)]),
            2 => Value::symbol(words[rng.usize(0..words.len())]).unwrap(),
            3 => Value::text(["", "\"", "\\", "a\nb\tc", "\u{0}\u{7f}", "=>"][rng.usize(0..6)]).unwrap(),
            _ => Value::text((0..rng.usize(0..9)).map(|_| rng.char(..)).collect::<String>()).unwrap(),
        }
    }

    fn operator(self, rng: &mut Rng) -> Operator {
        Operator::ALL[rng.usize(0..5)]
    }
}

fn name(rng: &mut Rng) -> Symbol {
    Symbol::new(["p", "q", "not"][rng.usize(0..3)]).unwrap()
}

/// Generates facts, in order.
pub(super) fn facts(rng: &mut Rng) -> BTreeSet<Fact> {
    let fact = |rng: &mut Rng| {
        let values = (0..rng.usize(1..3)).map(|_| Plain.value(rng)).collect();
        Fact::new(name(rng), values).unwrap()
    };
    (0..rng.usize(0..16)).map(|_| fact(rng)).collect()
}

pub(super) fn goal(rng: &mut Rng, values: impl Values) -> Goal {
    let take = [Take::First, Take::Only, Take::All][rng.usize(0..3)];
    let mut made = Made { variables: 0, values };
    let conditions: Vec<_> = (0..rng.usize(0..5)).map(|_| made.condition(rng)).collect();
    let fewest = usize::from(conditions.is_empty());
    let effects = (0..rng.usize(fewest..4)).map(|_| made.effect(rng)).collect();
    let variables = (0..made.variables).map(|n| Symbol::new(format!("v{n}")).unwrap()).collect();
    Goal { take, variables, conditions, effects }
}

struct Made<V> {
    variables: usize,
    values: V,
}

impl<V: Values> Made<V> {
    fn condition(&mut self, rng: &mut Rng) -> Condition {
        match rng.u8(0..4) {
            0 => {
                let comparison = Comparison::ALL[rng.usize(0..6)];
                Condition::Holds(self.expression(rng, 3), comparison, self.expression(rng, 3))
            }
            1 => Condition::Absent(self.pattern(rng, false)),
            _ => Condition::There(self.pattern(rng, true)),
        }
    }

    fn pattern(&mut self, rng: &mut Rng, may_bind: bool) -> Pattern {
        let terms = (0..rng.usize(1..3)).map(|_| match rng.u8(0..5) {
            0 => Term::Any,
            1 | 2 if may_bind => {
                self.variables += 1;
                Term::Is(Expression::Variable(self.variables - 1))
            }
            _ => Term::Is(self.expression(rng, 1)),
        });
        let terms = terms.collect();
        Pattern { name: name(rng), terms }
    }

    fn effect(&mut self, rng: &mut Rng) -> Effect {
        let kind = [Kind::Retract, Kind::Assert, Kind::Assert][rng.usize(0..3)];
        let arguments = (0..rng.usize(1..3)).map(|_| self.expression(rng, 2)).collect();
        Effect { kind, name: name(rng), arguments }
    }

    fn expression(&mut self, rng: &mut Rng, depth: u8) -> Expression {
        match rng.u8(0..4) {
            0 if depth > 0 => {
                let (left, right) = (self.expression(rng, depth - 1), self.expression(rng, depth - 1));
                Expression::Calculation(Box::new(left), self.values.operator(rng), Box::new(right))
            }
            1 | 2 if self.variables > 0 => Expression::Variable(rng.usize(0..self.variables)),
            _ => Expression::Value(self.values.value(rng)),
        }
    }
}

//! Generators of goals and facts, and a reference implementation of goals that tests every fact for every condition.

use std::collections::BTreeSet;

use fastrand::Rng;

use crate::machine::facts::goal::{
    Comparison, Condition, Effect, Expression, Goal, Kind, Operator, Pattern, Take, Term,
};
use crate::machine::facts::{Fact, Facts};
use crate::machine::{GoalError, Overlay, StateMachine, Symbol, Value};

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

pub(super) fn all(facts: &Facts) -> BTreeSet<Fact> {
    // The smallest possible fact, so that the view starts at the first row.
    let start = Fact::new(Symbol::new("A").unwrap(), Vec::new()).unwrap();
    let restored = Facts::restore(facts.chunks(256)).unwrap();
    let over = Overlay::default();
    restored.view(&over).starting_at(&start).map(|(fact, ())| fact.clone()).collect()
}

pub(super) fn matches(facts: &Facts, goal: &Goal) -> Vec<Vec<Value>> {
    let facts = all(facts);
    let mut tried = vec![Vec::new()];
    for condition in &goal.conditions {
        let next = |bound: Vec<Value>| -> Vec<Vec<Value>> {
            match condition {
                Condition::There(pattern) => {
                    facts.iter().filter_map(|fact| fitting(pattern, fact, bound.clone())).collect()
                }
                Condition::Absent(pattern) => {
                    let is_there = facts.iter().any(|fact| fitting(pattern, fact, bound.clone()).is_some());
                    if is_there { vec![] } else { vec![bound] }
                }
                Condition::Holds(left, comparison, right) => {
                    let (left, right) = (value(left, &bound), value(right, &bound));
                    let holds = match comparison {
                        Comparison::Equal => left == right,
                        Comparison::Unequal => left != right,
                        Comparison::Less => left < right,
                        Comparison::AtMost => left <= right,
                        Comparison::Greater => left > right,
                        Comparison::AtLeast => left >= right,
                    };
                    if holds { vec![bound] } else { vec![] }
                }
            }
        };
        tried = tried.into_iter().flat_map(next).collect();
    }
    tried
}

/// Returns the facts after the effects.
pub(super) fn effects(
    facts: &Facts,
    goal: &Goal,
    matches: &[Vec<Value>],
) -> Result<BTreeSet<Fact>, GoalError> {
    let before = all(facts);
    let of = |kind: Kind| {
        matches.iter().flat_map(move |bound| {
            goal.effects.iter().filter(move |effect| effect.kind == kind).map(move |effect| {
                let values = effect.arguments.iter().map(|argument| value(argument, bound)).collect();
                Fact::new(effect.name.clone(), values).unwrap()
            })
        })
    };
    let mut after = before.clone();
    for fact in of(Kind::Retract) {
        if !before.contains(&fact) {
            return Err(GoalError::NotThere(fact.to_string()));
        }
        after.remove(&fact);
    }
    after.extend(of(Kind::Assert));
    Ok(after)
}

/// Returns the values of the variables if a fact matches. Variables are numbered in the order in which they are bound.
fn fitting(pattern: &Pattern, fact: &Fact, mut bound: Vec<Value>) -> Option<Vec<Value>> {
    if *fact.name() != pattern.name || fact.arguments().len() != pattern.terms.len() {
        return None;
    }
    for (term, found) in pattern.terms.iter().zip(fact.arguments()) {
        match term {
            Term::Any => {}
            Term::Is(Expression::Variable(index)) if *index == bound.len() => bound.push(found.clone()),
            Term::Is(expression) if value(expression, &bound) == *found => {}
            Term::Is(_) => return None,
        }
    }
    Some(bound)
}

fn value(expression: &Expression, bound: &[Value]) -> Value {
    match expression {
        Expression::Value(value) => value.clone(),
        Expression::Variable(index) => bound[*index].clone(),
        Expression::Calculation(left, operator, right) => {
            let (Value::Integer(left), Value::Integer(right)) = (value(left, bound), value(right, bound))
            else {
                panic!("plain goals calculate with integers");
            };
            Value::Integer(match operator {
                Operator::Plus => left + right,
                Operator::Minus => left - right,
                other => panic!("plain goals have no {other:?}"),
            })
        }
    }
}

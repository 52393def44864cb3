//! A reference implementation of the meaning of goals: it tests every fact for every condition.

use std::collections::BTreeSet;

use crate::machine::facts::goal::{Comparison, Condition, Expression, Goal, Kind, Operator, Pattern, Term};
use crate::machine::facts::{Fact, Facts};
use crate::machine::{Failed, Machine, Overlay, Symbol, Value};

pub(super) fn all(facts: &Facts) -> BTreeSet<Fact> {
    // The smallest possible fact, so that the view starts at the first row.
    let start = Fact::new(Symbol::new("A").unwrap(), Vec::new()).unwrap();
    let restored = Facts::restore(&facts.snapshot()).unwrap();
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
pub(super) fn effects(facts: &Facts, goal: &Goal, matches: &[Vec<Value>]) -> Result<BTreeSet<Fact>, Failed> {
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
            return Err(Failed::NotThere(fact.to_string()));
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
            Term::Is(Expression::Variable(place)) if *place == bound.len() => bound.push(found.clone()),
            Term::Is(expression) if value(expression, &bound) == *found => {}
            Term::Is(_) => return None,
        }
    }
    Some(bound)
}

fn value(expression: &Expression, bound: &[Value]) -> Value {
    match expression {
        Expression::Value(value) => value.clone(),
        Expression::Variable(place) => bound[*place].clone(),
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

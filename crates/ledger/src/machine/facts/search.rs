//! Finds the matches of a goal's conditions, and computes its effects.
//!
//! The search evaluates the conditions from left to right, and the facts of each condition in their order. If a
//! condition does not hold, the search backtracks to the last condition that has another fact. Matches therefore have
//! an order, and the same state and goal produce the same matches on every node. Each examined fact, comparison and
//! calculation costs one step. A search that exceeds the limit ends, at the same point on every node.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::goal::{Comparison, Condition, Effect, Expression, Goal, Kind, Pattern, Take, Term};
use super::{Bindings, Fact, FactRules};
use crate::machine::limits::{ANSWER_BYTES, MATCHES, STEP_BYTES, STEPS};
use crate::machine::shown;
use crate::machine::table::Execution;
use crate::machine::{GoalError, Symbol, TableView, Value};

pub(super) fn run(view: TableView<'_, Fact, ()>, goal: &Goal) -> Result<Execution<FactRules>, GoalError> {
    let bound = vec![None; goal.variables.len()];
    let mut search = Search { view, goal, bound, found: Vec::new(), steps: 0, bytes: 0 };
    search.conditions(&goal.conditions)?;
    match (goal.take, search.found.len()) {
        (Take::First | Take::Only, 0) => return Err(GoalError::NoMatch),
        (Take::Only, 2..) => return Err(GoalError::Ambiguous),
        _ => {}
    }
    let wanted = search.effects()?;
    let matches = search.found.into_iter().map(|values| values.into_iter().cloned().collect()).collect();
    Ok((wanted, Bindings { variables: goal.variables.clone(), matches }))
}

struct Search<'a> {
    view: TableView<'a, Fact, ()>,
    goal: &'a Goal,
    /// The values of the variables that are bound so far.
    bound: Vec<Option<&'a Value>>,
    found: Vec<Vec<&'a Value>>,
    steps: usize,
    bytes: usize,
}

impl<'a> Search<'a> {
    /// Evaluates the conditions. Returns true if enough matches were found.
    fn conditions(&mut self, conditions: &'a [Condition]) -> Result<bool, GoalError> {
        let Some((first, rest)) = conditions.split_first() else { return self.found() };
        match first {
            Condition::There(pattern) => self.each_fact(pattern, |search| search.conditions(rest)),
            Condition::Absent(pattern) => {
                let is_there = self.each_fact(pattern, |_| Ok(true))?;
                if is_there { Ok(false) } else { self.conditions(rest) }
            }
            Condition::Holds(left, comparison, right) => {
                if self.holds(left, *comparison, right)? {
                    self.conditions(rest)
                } else {
                    Ok(false)
                }
            }
        }
    }

    /// Continues with each matching fact, until enough matches were found.
    fn each_fact(
        &mut self,
        pattern: &'a Pattern,
        mut next: impl FnMut(&mut Self) -> Result<bool, GoalError>,
    ) -> Result<bool, GoalError> {
        let start = self.start(pattern)?;
        let known = self.bound.clone();
        for (fact, ()) in self.view.starting_at(&start) {
            if !fact.begins_with(&start) {
                break;
            }
            self.step()?;
            let is_enough = self.matches(pattern, fact)? && next(self)?;
            self.bound.clone_from(&known);
            if is_enough {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the common prefix of all matches. The search starts there and ends behind it, so it examines no other
    /// facts.
    fn start(&mut self, pattern: &'a Pattern) -> Result<Fact, GoalError> {
        let mut values = Vec::new();
        for term in &pattern.terms {
            match term {
                Term::Is(Expression::Variable(index)) if self.value_of(*index).is_none() => break,
                Term::Is(expression) => values.push(self.copy(expression)?),
                Term::Any => break,
            }
        }
        fact(&pattern.name, values)
    }

    /// Returns true if a fact matches the pattern. Binds the variables of the pattern.
    fn matches(&mut self, pattern: &'a Pattern, fact: &'a Fact) -> Result<bool, GoalError> {
        if fact.arguments().len() != pattern.terms.len() {
            return Ok(false);
        }
        for (term, value) in pattern.terms.iter().zip(fact.arguments()) {
            let fits = match term {
                Term::Any => true,
                Term::Is(Expression::Variable(index)) => match self.bound.get_mut(*index) {
                    Some(Some(known)) => *known == value,
                    Some(unknown) => {
                        *unknown = Some(value);
                        true
                    }
                    None => false,
                },
                Term::Is(expression) => *self.value(expression)? == *value,
            };
            if !fits {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Records a match of all conditions. Returns true if no more matches are needed.
    fn found(&mut self) -> Result<bool, GoalError> {
        let values: Vec<_> = self.bound.iter().copied().flatten().collect();
        self.bytes += values.iter().map(|value| value.size()).sum::<usize>();
        self.found.push(values);
        if self.found.len() > MATCHES {
            return Err(GoalError::too_much("matches", MATCHES));
        }
        if self.bytes > ANSWER_BYTES {
            return Err(GoalError::too_much("bytes of answers", ANSWER_BYTES));
        }
        Ok(match self.goal.take {
            Take::First => true,
            Take::Only => self.found.len() > 1,
            Take::All => false,
        })
    }

    /// Returns the facts that all matches together want: all retractions come first, then all assertions.
    fn effects(&mut self) -> Result<BTreeMap<Fact, Option<()>>, GoalError> {
        let mut wanted = BTreeMap::new();
        for kind in [Kind::Retract, Kind::Assert] {
            for index in 0..self.found.len() {
                let values = self.found.get(index).into_iter().flatten();
                self.bound = values.map(|value| Some(*value)).collect();
                for effect in self.goal.effects.iter().filter(|effect| effect.kind == kind) {
                    let fact = self.effect(effect)?;
                    if kind == Kind::Retract && self.view.get(&fact).is_none() {
                        return Err(GoalError::NotThere(shown(&fact)));
                    }
                    wanted.insert(fact, (kind == Kind::Assert).then_some(()));
                }
            }
        }
        Ok(wanted)
    }

    fn effect(&mut self, effect: &'a Effect) -> Result<Fact, GoalError> {
        self.step()?;
        let values = effect.arguments.iter().map(|argument| self.copy(argument)).collect::<Result<_, _>>()?;
        fact(&effect.name, values)
    }

    fn holds(
        &mut self,
        left: &'a Expression,
        comparison: Comparison,
        right: &'a Expression,
    ) -> Result<bool, GoalError> {
        self.step()?;
        let (left, right) = (self.value(left)?, self.value(right)?);
        let order = || match (&*left, &*right) {
            (Value::Integer(left), Value::Integer(right)) => Ok(left.cmp(right)),
            (Value::Symbol(left), Value::Symbol(right)) => Ok(left.cmp(right)),
            (Value::Text(left), Value::Text(right)) => Ok(left.cmp(right)),
            (left, right) => Err(GoalError::Incomparable(shown(left), shown(right))),
        };
        match comparison {
            Comparison::Equal => Ok(left == right),
            Comparison::Unequal => Ok(left != right),
            Comparison::Less => Ok(order()?.is_lt()),
            Comparison::AtMost => Ok(order()?.is_le()),
            Comparison::Greater => Ok(order()?.is_gt()),
            Comparison::AtLeast => Ok(order()?.is_ge()),
        }
    }

    fn value(&mut self, expression: &'a Expression) -> Result<Cow<'a, Value>, GoalError> {
        let (left, operator, right) = match expression {
            Expression::Value(value) => return Ok(Cow::Borrowed(value)),
            // The parser has checked that the variable is bound here.
            Expression::Variable(index) => {
                return self.value_of(*index).map(Cow::Borrowed).ok_or(GoalError::NoMatch);
            }
            Expression::Calculation(left, operator, right) => (left, operator, right),
        };
        self.step()?;
        let (left, right) = (number(self.value(left)?.as_ref())?, number(self.value(right)?.as_ref())?);
        let none = || GoalError::NoResult(format!("{left} {} {right}", operator.sign()));
        operator.calculate(left, right).map(|result| Cow::Owned(result.into())).ok_or_else(none)
    }

    /// Returns an owned copy of the value. Long values cost more steps.
    fn copy(&mut self, expression: &'a Expression) -> Result<Value, GoalError> {
        let value = self.value(expression)?;
        self.pay(value.size() / STEP_BYTES)?;
        Ok(value.into_owned())
    }

    fn value_of(&self, index: usize) -> Option<&'a Value> {
        self.bound.get(index).copied().flatten()
    }

    fn step(&mut self) -> Result<(), GoalError> {
        self.pay(1)
    }

    fn pay(&mut self, steps: usize) -> Result<(), GoalError> {
        self.steps += steps;
        if self.steps > STEPS { Err(GoalError::too_much("steps of search", STEPS)) } else { Ok(()) }
    }
}

/// Creates a fact. The parser has checked the number of values.
fn fact(name: &Symbol, values: Vec<Value>) -> Result<Fact, GoalError> {
    Fact::new(name.clone(), values).map_err(|_| GoalError::NoMatch)
}

fn number(value: &Value) -> Result<i64, GoalError> {
    match value {
        Value::Integer(number) => Ok(*number),
        other => Err(GoalError::NotAnInteger(shown(other))),
    }
}

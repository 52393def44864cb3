//! Facts, and goals over them: the conditions that must hold, and the facts to retract and assert.
//!
//! `docs/ledger-goals.md` describes the language; a test runs the examples on that page.

mod fact;
mod goal;
mod lexer;
mod parser;
mod search;
#[cfg(test)]
mod tests;

pub use fact::{Bindings, Fact};
pub use goal::Goal;

use super::table::{Execution, Rules, Table};
use super::{GoalError, TableView};

/// A set of facts.
pub type Facts = Table<FactRules>;

/// The rules by which goals change facts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FactRules;

impl Rules for FactRules {
    const KIND: &'static str = "facts";
    type Key = Fact;
    type Value = ();
    type Goal = Goal;
    type Answer = Bindings;

    fn run(view: TableView<'_, Fact, ()>, goal: &Goal) -> Result<Execution<Self>, GoalError> {
        search::run(view, goal)
    }
}

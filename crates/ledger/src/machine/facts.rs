//! Facts, and goals over them: the conditions that must hold, and the facts to retract and assert.
//!
//! `docs/ledger-goals.md` describes the language; a test runs the examples on that page.

mod answer;
mod fact;
mod goal;
mod lexer;
mod parser;
mod print;
mod search;
#[cfg(test)]
mod tests;

pub use answer::Answer;
pub use fact::Fact;
pub use goal::Goal;

use super::table::{Ran, Rules, Table};
use super::{Failed, View};

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
    type Answer = Answer;

    fn run(view: View<'_, Fact, ()>, goal: &Goal) -> Result<Ran<Self>, Failed> {
        search::run(view, goal)
    }
}

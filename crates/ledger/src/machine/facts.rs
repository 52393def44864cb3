//! Facts, and goals over them: conditions that must hold, and what to retract and assert then.
//!
//! The language is described, with examples that are run, in `docs/ledger-goals.md`.

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

/// Facts, each of which is there or is not.
pub type Facts = Table<FactRules>;

/// How goals change facts.
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

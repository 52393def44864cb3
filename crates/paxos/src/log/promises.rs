//! A voter's promises: a term for each configuration under which a candidate has asked it.
//!
//! A candidate under a later configuration knows that the slot before the start of that configuration is decided; the
//! voter may not know it yet. Until it does, the voter keeps voting under the configuration that it knows. Otherwise,
//! if the candidate is lost, a decided change could be on every disk and no node could find out that it is decided.
//! Voting under the earlier configuration is safe: it can decide nothing except entries that are already decided, and
//! no leader appends an entry after a change that it does not know to be decided.

use serde::{Deserialize, Serialize};

use super::Term;
use crate::Slot;

/// The maximum number of promises. A voter that has promised under so many configurations that it does not know must
/// learn the decided changes first.
const MOST: usize = 64;

/// The latest promised terms, each with a different start slot.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Promises(Vec<Term>);

impl Promises {
    /// Returns the latest promise.
    pub(super) fn latest(&self) -> Term {
        self.0.last().copied().unwrap_or_else(Term::none)
    }

    /// Returns the latest promise that binds the voter under the configuration with this start.
    pub(super) fn under(&self, start: Slot) -> Term {
        let known = self.0.iter().rev().find(|term| term.start() <= start);
        known.copied().unwrap_or_else(Term::none)
    }

    /// Returns the promises with this term in place of the earlier promise for the same start.
    pub(super) fn with(&self, term: Term) -> Self {
        let mut terms: Vec<_> = self.0.iter().filter(|it| it.start() != term.start()).copied().collect();
        terms.push(term);
        terms.sort_unstable();
        Self(terms)
    }

    /// Returns whether there is room for a promise of this term.
    pub(super) fn have_room_for(&self, term: Term) -> bool {
        self.0.len() < MOST || self.0.iter().any(|known| known.start() == term.start())
    }

    /// Drops superseded promises once the configuration with this start is known: of the promises up to that start the
    /// latest is enough.
    pub(super) fn settle(&mut self, start: Slot) {
        let latest = self.under(start);
        self.0.retain(|term| *term >= latest);
    }
}

impl From<Term> for Promises {
    fn from(term: Term) -> Self {
        Self(vec![term])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;

    fn term(start: u64, attempt: u64) -> Term {
        Term::new(Slot(start), attempt, NodeId(1))
    }

    #[test]
    fn a_later_configuration_does_not_bind_an_earlier_one() {
        let promises = Promises::from(term(1, 5)).with(term(9, 2));
        assert_eq!(promises.under(Slot(1)), term(1, 5));
        assert_eq!(promises.under(Slot(8)), term(1, 5));
        assert_eq!(promises.under(Slot(9)), term(9, 2));
        assert_eq!(promises.latest(), term(9, 2));
    }

    #[test]
    fn none_is_forgotten_until_its_configuration_is_over() {
        let mut promises = Promises::from(term(1, 5)).with(term(9, 2)).with(term(20, 1)).with(term(1, 7));
        assert_eq!(promises.under(Slot(1)), term(1, 7));
        promises.settle(Slot(9));
        assert_eq!(promises.under(Slot(9)), term(9, 2), "although a later one was made since");
        assert_eq!(promises, Promises::from(term(9, 2)).with(term(20, 1)));
    }

    #[test]
    fn who_has_promised_nothing_under_a_configuration_is_bound_by_the_one_before() {
        let mut promises = Promises::from(term(1, 5));
        promises.settle(Slot(9));
        assert_eq!(promises.under(Slot(9)), term(1, 5));
    }
}

//! What a voter has promised: once for each configuration that it was asked under.
//!
//! Whoever asks under a later configuration knows that the slot before its start is decided; who is asked need not. Until it
//! does, it goes on voting under the configuration it knows: else, with the one who knew gone, what is decided could stand on
//! every disk and nobody could find out. It does no harm: under the earlier configuration nothing can be decided any more but
//! what is already, and no entry goes on top of a change that is not known to be decided.

use serde::{Deserialize, Serialize};

use super::Term;
use crate::Slot;

/// Whoever was asked under so many configurations that it knows nothing of must learn first.
const MOST: usize = 64;

/// The latest terms that were promised, each of another start.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Promises(Vec<Term>);

impl Promises {
    /// The latest of all.
    pub(super) fn latest(&self) -> Term {
        self.0.last().copied().unwrap_or_else(Term::none)
    }

    /// The latest that binds whoever is asked under the configuration of this start.
    pub(super) fn under(&self, start: Slot) -> Term {
        let known = self.0.iter().rev().find(|term| term.start() <= start);
        known.copied().unwrap_or_else(Term::none)
    }

    /// With a later term of its start.
    pub(super) fn with(&self, term: Term) -> Self {
        let mut terms: Vec<_> = self.0.iter().filter(|it| it.start() != term.start()).copied().collect();
        terms.push(term);
        terms.sort_unstable();
        Self(terms)
    }

    /// Whether there is room for this one.
    pub(super) fn have_room_for(&self, term: Term) -> bool {
        self.0.len() < MOST || self.0.iter().any(|known| known.start() == term.start())
    }

    /// The configuration of this start is known: of what was promised until then, the latest is enough.
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

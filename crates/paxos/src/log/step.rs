//! What comes of a step: some of it may go at once, the rest when the step is on disk.

use crate::Held;

/// What must be stored, what may be done then, and what need not wait for it.
///
/// Release steps in the order in which they came. Whoever does not ask for what is early gets it with the rest.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[must_use = "what is held back reaches nobody until its records are stored"]
pub struct Step<R, O> {
    early: Vec<O>,
    held: Held<Vec<R>, Vec<O>>,
}

impl<R, O> Step<R, O> {
    /// These are early; those may be done when the records are stored.
    pub fn new(early: Vec<O>, records: Vec<R>, outputs: Vec<O>) -> Self {
        let held = if records.is_empty() { Held::free(outputs) } else { Held::behind(records, outputs) };
        Self { early, held }
    }

    /// Takes what may be done at once, whatever is on disk.
    pub fn early(&mut self) -> Vec<O> {
        std::mem::take(&mut self.early)
    }

    /// What must be stored.
    pub fn record(&self) -> Option<&Vec<R>> {
        self.held.record()
    }

    /// Stores what must be, and gives out what may be done then.
    pub fn release<E>(self, store: impl FnOnce(Vec<R>) -> Result<(), E>) -> Result<Vec<O>, E> {
        self.into_held().release(store)
    }

    /// Stores the records of many at once, in their order, and gives out what may be done then.
    pub fn release_all<E>(
        many: impl IntoIterator<Item = Self>,
        store: impl FnOnce(Vec<Vec<R>>) -> Result<(), E>,
    ) -> Result<Vec<Vec<O>>, E> {
        Held::release_all(many.into_iter().map(Self::into_held), store)
    }

    /// All of it behind the records, also what is early and was not taken.
    pub fn into_held(self) -> Held<Vec<R>, Vec<O>> {
        let mut early = self.early;
        self.held.map(|held| {
            early.extend(held);
            early
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_early_and_not_taken_comes_with_the_rest() {
        let step = || Step::new(vec!["append"], vec!["entry"], vec!["proposed"]);
        assert_eq!(step().release(|_| Ok::<_, ()>(())), Ok(vec!["append", "proposed"]));
        let mut taken = step();
        assert_eq!(taken.early(), ["append"]);
        assert_eq!(taken.clone().release(|_| Err("disk full")), Err("disk full"), "the rest waits");
        assert_eq!(taken.release(|_| Ok::<_, ()>(())), Ok(vec!["proposed"]));
    }
}

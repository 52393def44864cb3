//! The result of a step: messages that may leave at once, and outputs that wait for the disk.

use crate::Held;

/// The records to store, the outputs that depend on them, and the early outputs that do not.
///
/// The caller releases steps in the order in which it received them. If it does not take the early outputs, it gets
/// them with the others.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[must_use = "what is held back reaches nobody until its records are stored"]
pub struct Step<R, O> {
    early: Vec<O>,
    held: Held<Vec<R>, Vec<O>>,
}

impl<R, O> Step<R, O> {
    /// Creates a step. The early outputs are free at once, the others when the records are stored.
    pub fn new(early: Vec<O>, records: Vec<R>, outputs: Vec<O>) -> Self {
        let held = if records.is_empty() { Held::free(outputs) } else { Held::behind(records, outputs) };
        Self { early, held }
    }

    /// Takes the outputs that may be performed at once, whether or not the records are stored.
    pub fn early(&mut self) -> Vec<O> {
        std::mem::take(&mut self.early)
    }

    /// Returns the records that must be stored.
    pub fn record(&self) -> Option<&Vec<R>> {
        self.held.record()
    }

    /// Stores the records and returns the outputs that depended on them.
    pub fn release<E>(self, store: impl FnOnce(Vec<R>) -> Result<(), E>) -> Result<Vec<O>, E> {
        self.into_held().release(store)
    }

    /// Stores the records of many steps with one call, in order, and returns their outputs.
    pub fn release_all<E>(
        many: impl IntoIterator<Item = Self>,
        store: impl FnOnce(Vec<Vec<R>>) -> Result<(), E>,
    ) -> Result<Vec<Vec<O>>, E> {
        Held::release_all(many.into_iter().map(Self::into_held), store)
    }

    /// Holds all outputs behind the records, including early outputs that were not taken.
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

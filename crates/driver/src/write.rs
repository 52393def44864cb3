//! One write, from the driver to the disk and back.

/// Records to store in one transaction, after all earlier writes.
#[derive(PartialEq, Eq, Debug)]
#[must_use = "the outputs of the driver wait for this write"]
pub struct Write<R> {
    pub(crate) records: Vec<R>,
    /// The number of the last write that this one contains.
    pub(crate) through: u64,
}

/// The proof that a write, and all earlier writes of the same driver, are on disk.
///
/// It is not `Clone`: a driver releases the outputs of a write once.
#[derive(PartialEq, Eq, Debug)]
#[must_use = "the driver releases its outputs when it receives this"]
pub struct Written {
    pub(crate) through: u64,
}

impl<R> Write<R> {
    /// Returns the records, in order.
    pub fn records(&self) -> &[R] {
        &self.records
    }

    /// Adds the next write of the same driver, to store both in one transaction.
    pub fn append(&mut self, next: Self) {
        self.records.extend(next.records);
        self.through = next.through;
    }

    /// Stores the records. `store` returns when they are on disk; after an error nothing is released.
    pub fn store<E>(self, store: impl FnOnce(Vec<R>) -> Result<(), E>) -> Result<Written, E> {
        store(self.records)?;
        Ok(Written { through: self.through })
    }
}

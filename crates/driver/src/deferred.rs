//! Messages that wait for the record they depend on.

/// A message that is held back until the record it depends on is on disk.
///
/// The only access to the message is to store its record first, alone or together with others ([`Deferred::release_all`]).
/// If storing fails, the message is dropped: a node that cannot store must not answer.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[must_use = "the message must be released by storing its record"]
pub struct Deferred<R, M> {
    record: Option<R>,
    message: M,
}

impl<R, M> Deferred<R, M> {
    /// Holds a message back until the record is stored.
    pub fn until_stored(record: R, message: M) -> Self {
        Self { record: Some(record), message }
    }

    /// Wraps a message that needs no record of its own.
    ///
    /// The message may still depend on the record of an earlier `Deferred`. The caller releases them in order.
    pub fn ready(message: M) -> Self {
        Self { record: None, message }
    }

    /// Returns the record that must be stored, if there is one.
    pub fn record(&self) -> Option<&R> {
        self.record.as_ref()
    }

    /// Stores the record, if there is one, and returns the message.
    pub fn release<E>(self, store: impl FnOnce(R) -> Result<(), E>) -> Result<M, E> {
        self.record.map_or(Ok(()), store)?;
        Ok(self.message)
    }

    /// Stores all records with one call, in order, and returns all messages.
    pub fn release_all<E>(
        many: impl IntoIterator<Item = Self>,
        store: impl FnOnce(Vec<R>) -> Result<(), E>,
    ) -> Result<Vec<M>, E> {
        let (records, messages): (Vec<_>, Vec<_>) =
            many.into_iter().map(|held| (held.record, held.message)).unzip();
        let records: Vec<_> = records.into_iter().flatten().collect();
        if !records.is_empty() {
            store(records)?;
        }
        Ok(messages)
    }

    /// Splits the record from the message. Only a step may do this: it keeps them together.
    pub(crate) fn into_parts(self) -> (Option<R>, M) {
        (self.record, self.message)
    }

    /// Replaces the message and keeps the record.
    pub fn map<N>(self, change: impl FnOnce(M) -> N) -> Deferred<R, N> {
        Deferred { record: self.record, message: change(self.message) }
    }

    /// Converts the record and keeps the message.
    pub fn map_record<S>(self, change: impl FnOnce(R) -> S) -> Deferred<S, M> {
        Deferred { record: self.record.map(change), message: self.message }
    }
}

impl<R, M> Deferred<Vec<R>, M> {
    /// Combines two into one. The messages of both are released when the records of both are stored.
    pub fn and<N>(self, other: Deferred<R, N>) -> Deferred<Vec<R>, (M, N)> {
        let mut record = self.record.unwrap_or_default();
        record.extend(other.record);
        let record = Some(record).filter(|record| !record.is_empty());
        Deferred { record, message: (self.message, other.message) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_not_released_if_storing_fails() {
        let held = Deferred::until_stored("promise", "promised");
        assert_eq!(held.clone().release(|_| Err("disk full")), Err("disk full"));
        assert_eq!(held.clone().release(|_| Ok::<_, ()>(())), Ok("promised"));
        let free = Deferred::ready("refused");
        assert_eq!(free.clone().release(|_: &str| Err("disk full")), Ok("refused"));
        let both = || [held.clone(), free.clone()];
        assert_eq!(Deferred::release_all(both(), |_| Err("disk full")), Err("disk full"));
        let stored = |records| if records == ["promise"] { Ok(()) } else { Err(records) };
        assert_eq!(Deferred::release_all(both(), stored), Ok(vec!["promised", "refused"]));
    }
}

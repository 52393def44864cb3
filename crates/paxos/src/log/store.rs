//! A node's stored state, kept in memory in the same form as on disk.

use serde::{Deserialize, Serialize};

use super::{Entry, EntryPayload, EntrySize, LogId, Snapshot, Term};
use crate::{Configuration, Slot};

/// A record that must be on disk before any other node may learn of its content.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Record<V, S> {
    /// The promises: under the configuration of a promised term's start the node accepts nothing of an earlier term.
    Promised(Promises),
    /// The log up to this slot equals the log of this term's leader. Entries after the slot are removed.
    Accepted {
        /// The leader's term.
        term: Term,
        /// The last slot.
        last: Slot,
    },
    /// An entry. Entries after its slot are removed.
    Entry {
        /// The entry's slot.
        slot: Slot,
        /// The entry.
        entry: Entry<V>,
    },
    /// All slots up to this slot are decided. The node must store this where the configuration changes; elsewhere it
    /// need not.
    Decided(Slot),
    /// A snapshot that replaces all entries up to its last entry.
    Snapshot(Snapshot<S>),
}

/// A node's promises, its log, and the last decided slot.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Store<V, S> {
    promises: Promises,
    accepted: Term,
    base: Snapshot<S>,
    entries: Vec<Entry<V>>,
    /// The cumulative sizes of the entries, in bytes.
    ends: Vec<u64>,
    decided: Slot,
    /// The first slot of the configuration that decides the next undecided slot.
    start: Slot,
    configuration: Configuration,
}

impl<V: EntrySize, S> Store<V, S> {
    /// Creates an empty log with this configuration.
    pub fn new(configuration: Configuration, state: S) -> Self {
        let last = LogId { slot: Slot(0), term: Term::none() };
        let start = Slot(1);
        let base = Snapshot { last, start, configuration: configuration.clone(), state };
        let (promises, accepted) = (Promises::default(), Term::none());
        let (entries, ends) = (Vec::new(), Vec::new());
        Self { promises, accepted, base, entries, ends, decided: Slot(0), start, configuration }
    }

    /// Applies a record: when the node creates it, and again when the node recovers after a restart.
    pub fn apply(&mut self, record: Record<V, S>) {
        match record {
            Record::Promised(promises) => {
                self.promises = promises;
                self.promises.drop_superseded(self.start);
            }
            Record::Accepted { term, last } => {
                self.accepted = term;
                self.truncate_after(last);
            }
            Record::Entry { slot, entry } => {
                self.truncate_after(Slot(slot.0.saturating_sub(1)));
                if slot == self.last().next() {
                    self.ends.push(self.ends.last().copied().unwrap_or_default() + entry.bytes() as u64);
                    self.entries.push(entry);
                }
            }
            Record::Decided(slot) => {
                self.decide(slot);
            }
            Record::Snapshot(snapshot) => self.install(snapshot),
        }
    }

    /// Returns the latest promised term.
    pub fn promised(&self) -> Term {
        self.promises.latest()
    }

    /// Returns the latest promise that binds this node towards leaders and candidates under the configuration with this
    /// start.
    pub(super) fn promised_under(&self, start: Slot) -> Term {
        self.promises.under(start.max(self.start))
    }

    pub(super) fn promises(&self) -> &Promises {
        &self.promises
    }

    /// Returns the term in which the log was last accepted as a leader's.
    pub fn accepted(&self) -> Term {
        self.accepted
    }

    /// Returns the last slot of the log.
    pub fn last(&self) -> Slot {
        Slot(self.base.last.slot.0 + self.entries.len() as u64)
    }

    /// Returns the last slot that is known to be decided.
    pub fn decided(&self) -> Slot {
        self.decided
    }

    /// Returns the first slot of the active configuration.
    pub fn start(&self) -> Slot {
        self.start
    }

    /// Returns the configuration that decides the slot after the decided slots.
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// Returns the snapshot that replaces the compacted entries.
    pub fn snapshot(&self) -> &Snapshot<S> {
        &self.base
    }

    /// Returns the entry of a slot. None if a snapshot covers the slot or the log ends before it.
    pub fn entry(&self, slot: Slot) -> Option<&Entry<V>> {
        self.entries.get(self.index(slot)?)
    }

    /// Returns the entries from a slot on.
    pub(super) fn entries_from(&self, slot: Slot) -> &[Entry<V>] {
        self.index(slot).and_then(|index| self.entries.get(index..)).unwrap_or_default()
    }

    /// Returns the slots of the log after its snapshot, and the sizes of their entries.
    pub(super) fn range(&self) -> LogRange<'_> {
        LogRange::new(self.base.last.slot, &self.ends)
    }

    /// Returns the slot and term of the entry at a slot.
    pub(super) fn log_id(&self, slot: Slot) -> Option<LogId> {
        if slot == self.base.last.slot {
            return Some(self.base.last);
        }
        self.entry(slot).map(|entry| LogId { slot, term: entry.term })
    }

    /// Returns the decided change that begins the active configuration, if that configuration is later than the one with
    /// this start. None if a snapshot covers the change.
    pub(super) fn change_after(&self, start: Slot) -> Option<LogId> {
        let change = self.start.0.checked_sub(1).filter(|_| start < self.start)?;
        self.log_id(Slot(change))
    }

    /// Returns whether the log ends with an undecided configuration change.
    pub(super) fn is_changing(&self) -> bool {
        let change = |entry: &Entry<V>| matches!(entry.payload, EntryPayload::Configuration(_));
        self.decided < self.last() && self.entries.last().is_some_and(change)
    }

    /// Marks all slots up to this slot as decided, as far as the log has entries. Returns whether the configuration
    /// changed.
    pub(super) fn decide(&mut self, through: Slot) -> bool {
        let start = self.start;
        while self.decided < through {
            let slot = self.decided.next();
            let Some(entry) = self.index(slot).and_then(|index| self.entries.get(index)) else { break };
            if let EntryPayload::Configuration(configuration) = &entry.payload {
                (self.start, self.configuration) = (slot.next(), configuration.clone());
            }
            self.decided = slot;
        }
        let configuration_changed = self.start != start;
        if configuration_changed {
            self.promises.drop_superseded(self.start);
        }
        configuration_changed
    }

    fn install(&mut self, snapshot: Snapshot<S>) {
        let last = snapshot.last;
        let matches = self.log_id(last.slot) == Some(last);
        let dropped = self.index(last.slot.next()).unwrap_or_default().min(self.entries.len());
        if matches {
            self.entries.drain(..dropped);
            let bytes = self.ends.drain(..dropped).next_back().unwrap_or_default();
            self.ends.iter_mut().for_each(|end| *end -= bytes);
        } else {
            self.entries.clear();
            self.ends.clear();
        }
        if last.slot >= self.decided {
            self.decided = last.slot;
            (self.start, self.configuration) = (snapshot.start, snapshot.configuration.clone());
            self.promises.drop_superseded(self.start);
        }
        self.base = snapshot;
    }

    /// Removes the entries after a slot.
    fn truncate_after(&mut self, last: Slot) {
        if let Some(index) = self.index(last.next()) {
            self.entries.truncate(index);
            self.ends.truncate(index);
        }
    }

    fn index(&self, slot: Slot) -> Option<usize> {
        let index = slot.0.checked_sub(self.base.last.slot.next().0)?;
        usize::try_from(index).ok()
    }
}

/// The slots of a log after its snapshot, and the sizes of their entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LogRange<'a> {
    /// The last slot that the snapshot covers.
    pub(super) snapshot: Slot,
    /// The last slot of the log.
    pub(super) last: Slot,
    /// The cumulative sizes of the entries, in bytes.
    ends: &'a [u64],
}

impl<'a> LogRange<'a> {
    pub(super) fn new(snapshot: Slot, ends: &'a [u64]) -> Self {
        Self { snapshot, last: Slot(snapshot.0 + ends.len() as u64), ends }
    }

    /// Returns the size of the entries between two slots, without the entries of these slots.
    pub(super) fn bytes(&self, after: Slot, before: Slot) -> u64 {
        let through = |slot: Slot| {
            let count = usize::try_from(slot.0.saturating_sub(self.snapshot.0)).unwrap_or(usize::MAX);
            self.ends.get(..count.min(self.ends.len())).and_then(<[u64]>::last).copied().unwrap_or_default()
        };
        through(Slot(before.0.saturating_sub(1))).saturating_sub(through(after))
    }

    /// Returns the number of entries from a slot on that fit into a message: at least one, if the log has it.
    pub(super) fn count(&self, from: Slot, entries: usize, bytes: u64) -> usize {
        let skipped = usize::try_from(from.0.saturating_sub(self.snapshot.next().0)).unwrap_or(usize::MAX);
        let ends = self.ends.get(skipped..).unwrap_or_default();
        let limit = self.bytes(self.snapshot, from).saturating_add(bytes);
        ends.partition_point(|end| *end <= limit).max(1).min(ends.len()).min(entries)
    }
}

/// The maximum number of promises. A voter that has promised under so many configurations that it does not know must
/// learn the decided changes first.
const MOST: usize = 64;

/// A voter's promises: the latest promised term for each configuration under which a candidate has asked it.
///
/// A candidate under a later configuration knows that the slot before the start of that configuration is decided; the
/// voter may not know it yet. Until it does, the voter keeps voting under the configuration that it knows. Otherwise,
/// if the candidate is lost, a decided change could be on every disk and no node could find out that it is decided.
/// Voting under the earlier configuration is safe: it can decide nothing except entries that are already decided, and
/// no leader appends an entry after a change that it does not know to be decided.
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
    pub(super) fn has_room_for(&self, term: Term) -> bool {
        self.0.len() < MOST || self.0.iter().any(|known| known.start() == term.start())
    }

    /// Drops superseded promises once the configuration with this start is known: of the promises up to that start the
    /// latest is enough.
    pub(super) fn drop_superseded(&mut self, start: Slot) {
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
    fn a_promise_stays_until_its_configuration_is_superseded() {
        let mut promises = Promises::from(term(1, 5)).with(term(9, 2)).with(term(20, 1)).with(term(1, 7));
        assert_eq!(promises.under(Slot(1)), term(1, 7));
        promises.drop_superseded(Slot(9));
        assert_eq!(
            promises.under(Slot(9)),
            term(9, 2),
            "the promise stays although a later promise was made"
        );
        assert_eq!(promises, Promises::from(term(9, 2)).with(term(20, 1)));
    }

    #[test]
    fn a_configuration_without_a_promise_inherits_the_previous_promise() {
        let mut promises = Promises::from(term(1, 5));
        promises.drop_superseded(Slot(9));
        assert_eq!(promises.under(Slot(9)), term(1, 5));
    }
}

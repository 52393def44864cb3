//! A node's stored state, kept in memory in the same form as on disk.

use serde::{Deserialize, Serialize};

use super::{Entry, Mark, Payload, Promises, Snapshot, Term};
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
    decided: Slot,
    /// The first slot of the configuration that decides the next undecided slot.
    start: Slot,
    configuration: Configuration,
}

impl<V, S> Store<V, S> {
    /// Creates an empty log with this configuration.
    pub fn new(configuration: Configuration, state: S) -> Self {
        let last = Mark { slot: Slot(0), term: Term::none() };
        let start = Slot(1);
        let base = Snapshot { last, start, configuration: configuration.clone(), state };
        let (promises, accepted) = (Promises::default(), Term::none());
        Self { promises, accepted, base, entries: Vec::new(), decided: Slot(0), start, configuration }
    }

    /// Applies a record: when the node creates it, and again when the node recovers after a restart.
    pub fn apply(&mut self, record: Record<V, S>) {
        match record {
            Record::Promised(promises) => {
                self.promises = promises;
                self.promises.settle(self.start);
            }
            Record::Accepted { term, last } => {
                self.accepted = term;
                self.cut(last);
            }
            Record::Entry { slot, entry } => {
                self.cut(Slot(slot.0.saturating_sub(1)));
                if slot == self.last().next() {
                    self.entries.push(entry);
                }
            }
            Record::Decided(slot) => {
                self.decide(slot);
            }
            Record::Snapshot(snapshot) => self.rest_on(snapshot),
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
        self.entries.get(self.place(slot)?)
    }

    /// Returns the entries from a slot on.
    pub(super) fn from(&self, slot: Slot) -> &[Entry<V>] {
        self.place(slot).and_then(|place| self.entries.get(place..)).unwrap_or_default()
    }

    /// Returns the slot and term of the entry at a slot.
    pub(super) fn mark(&self, slot: Slot) -> Option<Mark> {
        if slot == self.base.last.slot {
            return Some(self.base.last);
        }
        self.entry(slot).map(|entry| Mark { slot, term: entry.term })
    }

    /// Returns whether the log ends with an undecided configuration change.
    pub(super) fn is_changing(&self) -> bool {
        let change = |entry: &Entry<V>| matches!(entry.payload, Payload::Configuration(_));
        self.decided < self.last() && self.entries.last().is_some_and(change)
    }

    /// Marks all slots up to this slot as decided, as far as the log has entries. Returns whether the configuration
    /// changed.
    pub(super) fn decide(&mut self, through: Slot) -> bool {
        let start = self.start;
        while self.decided < through {
            let slot = self.decided.next();
            let Some(entry) = self.place(slot).and_then(|place| self.entries.get(place)) else { break };
            if let Payload::Configuration(configuration) = &entry.payload {
                (self.start, self.configuration) = (slot.next(), configuration.clone());
            }
            self.decided = slot;
        }
        let others_decide = self.start != start;
        if others_decide {
            self.promises.settle(self.start);
        }
        others_decide
    }

    fn rest_on(&mut self, snapshot: Snapshot<S>) {
        let last = snapshot.last;
        let goes_on = self.mark(last.slot) == Some(last);
        let dropped = self.place(last.slot.next()).unwrap_or_default().min(self.entries.len());
        if goes_on {
            self.entries.drain(..dropped);
        } else {
            self.entries.clear();
        }
        if last.slot >= self.decided {
            self.decided = last.slot;
            (self.start, self.configuration) = (snapshot.start, snapshot.configuration.clone());
            self.promises.settle(self.start);
        }
        self.base = snapshot;
    }

    /// Removes the entries after a slot.
    fn cut(&mut self, last: Slot) {
        if let Some(place) = self.place(last.next()) {
            self.entries.truncate(place);
        }
    }

    fn place(&self, slot: Slot) -> Option<usize> {
        let place = slot.0.checked_sub(self.base.last.slot.next().0)?;
        usize::try_from(place).ok()
    }
}

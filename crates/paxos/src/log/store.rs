//! What a node has on disk, and in memory in the same form.

use serde::{Deserialize, Serialize};

use super::{Entry, Mark, Payload, Promises, Snapshot, Term};
use crate::{Configuration, Slot};

/// What must be on disk before anybody may know of it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Record<V, S> {
    /// Nothing of an earlier term will be taken, under the configuration of its start.
    Promised(Promises),
    /// The log up to this slot is the leader's of this term; what came after it is none.
    Accepted {
        /// The leader's term.
        term: Term,
        /// The last slot.
        last: Slot,
    },
    /// An entry; what came after its slot is none.
    Entry {
        /// Where it is.
        slot: Slot,
        /// What is there.
        entry: Entry<V>,
    },
    /// All up to this slot is decided. It is stored where the configuration changes, and need not be elsewhere.
    Decided(Slot),
    /// This stands for all entries up to its last.
    Snapshot(Snapshot<S>),
}

/// A node's promise, its log, and how much of it is decided.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Store<V, S> {
    promises: Promises,
    accepted: Term,
    base: Snapshot<S>,
    entries: Vec<Entry<V>>,
    decided: Slot,
    /// Of whatever comes after what is decided.
    start: Slot,
    configuration: Configuration,
}

impl<V, S> Store<V, S> {
    /// An empty log that these decide.
    pub fn new(configuration: Configuration, state: S) -> Self {
        let last = Mark { slot: Slot(0), term: Term::none() };
        let start = Slot(1);
        let base = Snapshot { last, start, configuration: configuration.clone(), state };
        let (promises, accepted) = (Promises::default(), Term::none());
        Self { promises, accepted, base, entries: Vec::new(), decided: Slot(0), start, configuration }
    }

    /// Takes up a record: as it is made, and again in another life.
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

    /// The latest term that was promised.
    pub fn promised(&self) -> Term {
        self.promises.latest()
    }

    /// The latest promise that binds it towards whoever leads, or would, under the configuration of this start.
    pub(super) fn promised_under(&self, start: Slot) -> Term {
        self.promises.under(start.max(self.start))
    }

    pub(super) fn promises(&self) -> &Promises {
        &self.promises
    }

    /// The term in which the log was last accepted as a leader's.
    pub fn accepted(&self) -> Term {
        self.accepted
    }

    /// The last slot.
    pub fn last(&self) -> Slot {
        Slot(self.base.last.slot.0 + self.entries.len() as u64)
    }

    /// All up to here is decided.
    pub fn decided(&self) -> Slot {
        self.decided
    }

    /// The first slot that the configuration is for.
    pub fn start(&self) -> Slot {
        self.start
    }

    /// Who decides what comes after what is decided.
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// What stands for the entries that are not there any more.
    pub fn snapshot(&self) -> &Snapshot<S> {
        &self.base
    }

    /// What is at a slot, unless a snapshot stands for it or nothing is there yet.
    pub fn entry(&self, slot: Slot) -> Option<&Entry<V>> {
        self.entries.get(self.place(slot)?)
    }

    /// The entries from a slot on.
    pub(super) fn from(&self, slot: Slot) -> &[Entry<V>] {
        self.place(slot).and_then(|place| self.entries.get(place..)).unwrap_or_default()
    }

    /// The entry at a slot by its author.
    pub(super) fn mark(&self, slot: Slot) -> Option<Mark> {
        if slot == self.base.last.slot {
            return Some(self.base.last);
        }
        self.entry(slot).map(|entry| Mark { slot, term: entry.term })
    }

    /// Whether an undecided entry is there that changes who decides what comes after it.
    pub(super) fn is_changing(&self) -> bool {
        let change = |entry: &Entry<V>| matches!(entry.payload, Payload::Configuration(_));
        self.decided < self.last() && self.entries.last().is_some_and(change)
    }

    /// All up to this slot, as far as there is any, is decided. Returns whether others decide what comes next.
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

    /// Forgets what comes after a slot.
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

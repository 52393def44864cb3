//! What the entries have made of a machine.

mod done;
#[cfg(test)]
mod tests;

use holdoff_paxos::log::{self, Payload};
use holdoff_paxos::{Configuration, Slot};
use serde::{Deserialize, Serialize};

pub(crate) use done::Done;
pub use done::REMEMBERED;

use crate::entry::{Hash, Logged, Replicated, TxId, link};
use crate::machine::{BadSnapshot, Failed, Misfit};

/// A machine, how far the history has brought it, and which transactions it has seen lately.
///
/// It takes the entry after the last one, on top of the same hash, and no other; the index never moves without the diff.
#[derive(Clone, Debug)]
pub struct State<M: Replicated> {
    pub(crate) machine: M,
    pub(crate) index: Slot,
    pub(crate) hash: Hash,
    pub(crate) voters: Configuration,
    pub(crate) done: Done<M::Answer>,
}

/// A whole state, to be stored and sent in the place of entries.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Checkpoint<A> {
    pub(crate) hash: Hash,
    pub(crate) machine: Vec<u8>,
    pub(crate) done: Done<A>,
}

/// Why an entry is not the next one. The state is as it was.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Tear {
    /// It belongs elsewhere.
    #[error("the entry is for index {found}, and {next} comes next: fetch what is missing")]
    Gap {
        /// What comes next.
        next: Slot,
        /// What came.
        found: Slot,
    },
    /// It stands on another history.
    #[error("the entry at {0} stands on another history: fetch it from somebody else")]
    Fork(Slot),
    /// Its transaction is done already.
    #[error("the transaction of the entry at {0} is done already: whoever wrote it is broken")]
    Twice(Slot),
    /// It is for another state.
    #[error(transparent)]
    Misfit(#[from] Misfit),
    /// It changes something else than whoever wrote it says.
    #[error("the entry at {0} makes another state than it says: fetch it from somebody else")]
    OtherState(Slot),
    /// A checkpoint cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] BadSnapshot),
}

impl<M: Replicated> State<M> {
    /// Nothing has happened yet, and these decide.
    pub fn new(voters: Configuration) -> Self {
        let (machine, index, hash) = (M::default(), Slot(0), Hash::default());
        Self { machine, index, hash, voters, done: Done::default() }
    }

    /// The machine as it is now.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// The last entry that is in it.
    pub fn index(&self) -> Slot {
        self.index
    }

    /// The hash of that entry, and of all before it.
    pub fn hash(&self) -> Hash {
        self.hash
    }

    /// Who decides what comes next.
    pub fn voters(&self) -> &Configuration {
        &self.voters
    }

    /// What came of a transaction, and where it stands; none if that is not known, or not any more.
    pub fn done(&self, tx_id: TxId) -> Option<(Slot, &Result<M::Answer, Failed>)> {
        self.done.get(tx_id)
    }

    /// Takes the next entry.
    pub fn apply(&mut self, slot: Slot, entry: &Logged<M>) -> Result<(), Tear> {
        let mut over = M::Overlay::default();
        let hash = self.fits(slot, entry)?;
        if let Payload::Value(value) = &entry.payload {
            self.machine.lay(&mut over, value.diff.clone())?;
        }
        self.settle(slot, hash, entry, &mut over)
    }

    /// Takes the next entry, whose diff is the oldest of this overlay.
    pub(crate) fn settle_oldest(
        &mut self,
        slot: Slot,
        entry: &Logged<M>,
        over: &mut M::Overlay,
    ) -> Result<(), Tear> {
        let hash = self.fits(slot, entry)?;
        let Payload::Value(value) = &entry.payload else { return self.settle(slot, hash, entry, over) };
        self.machine.settle(over)?;
        if self.machine.hash(&M::Overlay::default()) != value.state_hash {
            return Err(Tear::OtherState(slot));
        }
        self.go_on(slot, hash, entry);
        Ok(())
    }

    fn settle(
        &mut self,
        slot: Slot,
        hash: Hash,
        entry: &Logged<M>,
        over: &mut M::Overlay,
    ) -> Result<(), Tear> {
        if let Payload::Value(value) = &entry.payload {
            if self.machine.hash(over) != value.state_hash {
                return Err(Tear::OtherState(slot));
            }
            self.machine.settle(over)?;
        }
        self.go_on(slot, hash, entry);
        Ok(())
    }

    /// Whether this is the next entry; the hash with it.
    fn fits(&self, slot: Slot, entry: &Logged<M>) -> Result<Hash, Tear> {
        let next = self.index.next();
        if slot != next {
            return Err(Tear::Gap { next, found: slot });
        }
        if let Payload::Value(value) = &entry.payload {
            if value.index != slot {
                return Err(Tear::Gap { next, found: value.index });
            }
            if value.prev_hash != self.hash || value.term != entry.term {
                return Err(Tear::Fork(slot));
            }
            if self.done.get(value.tx_id).is_some() {
                return Err(Tear::Twice(slot));
            }
        }
        link(self.hash, slot, entry).ok_or(Tear::Fork(slot))
    }

    fn go_on(&mut self, slot: Slot, hash: Hash, entry: &Logged<M>) {
        (self.index, self.hash) = (slot, hash);
        match &entry.payload {
            Payload::Value(value) => self.done.add(slot, value.tx_id, value.result.clone()),
            Payload::Configuration(voters) => self.voters = voters.clone(),
            Payload::Barrier => {}
        }
    }

    /// The whole of it.
    pub(crate) fn checkpoint(&self) -> Checkpoint<M::Answer> {
        let done = self.done.clone();
        Checkpoint { hash: self.hash, machine: self.machine.snapshot(), done }
    }

    /// The state that a snapshot of the log stands for.
    pub(crate) fn restore(snapshot: &log::Snapshot<Checkpoint<M::Answer>>) -> Result<Self, Tear> {
        let index = snapshot.last.slot;
        let voters = snapshot.configuration.clone();
        if index == Slot(0) {
            return Ok(Self::new(voters));
        }
        let Checkpoint { hash, machine, done } = &snapshot.state;
        let machine = M::restore(machine)?;
        Ok(Self { machine, index, hash: *hash, voters, done: done.clone() })
    }
}

impl<A> Default for Checkpoint<A> {
    /// What stands before the first entry.
    fn default() -> Self {
        Self { hash: Hash::default(), machine: Vec::new(), done: Done::default() }
    }
}

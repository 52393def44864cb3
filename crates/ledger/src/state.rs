//! The state that the applied entries have produced.

mod done;
#[cfg(test)]
mod tests;

use holdoff_paxos::log::{self, Payload, Term};
use holdoff_paxos::{Configuration, Slot};
use serde::{Deserialize, Serialize};

pub use done::REMEMBERED;
pub(crate) use done::{Done, Row};

use crate::certificate::{Certificate, Head};
use crate::entry::{Hash, Logged, Replicated, TxId, link};
use crate::machine::{BadSnapshot, Failed, Misfit};

/// A machine, the index of its last applied entry, and the transactions that it remembers.
///
/// A state accepts only the entry at the next index whose `prev_hash` is its own hash. The index never advances
/// without the diff.
#[derive(Clone, Debug)]
pub struct State<M: Replicated> {
    pub(crate) machine: M,
    pub(crate) index: Slot,
    pub(crate) hash: Hash,
    /// The term of the leader that created the last entry.
    term: Term,
    /// The first index that `voters` decide.
    pub(crate) start: Slot,
    pub(crate) voters: Configuration,
    pub(crate) done: Done<M::Answer>,
}

/// A whole state, which nodes store and send instead of entries.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Checkpoint<A> {
    pub(crate) hash: Hash,
    pub(crate) machine: Vec<u8>,
    pub(crate) done: Vec<Row<A>>,
    /// The certificate of this state, or `None` if no majority has signed it yet.
    pub(crate) proof: Option<Certificate>,
    /// One configuration certificate for each configuration after the first. With them a node that knows an earlier
    /// configuration verifies a later one. They prove themselves and are not part of the state.
    pub(crate) stones: Vec<Certificate>,
}

/// The reason why an entry is not the next one. The state has not changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Tear {
    /// The entry belongs to another index.
    #[error("the entry is for index {found}, and {next} comes next: fetch what is missing")]
    Gap {
        /// The next index of the state.
        next: Slot,
        /// The index of the entry.
        found: Slot,
    },
    /// The entry follows another history.
    #[error("the entry at {0} stands on another history: fetch it from somebody else")]
    Fork(Slot),
    /// The transaction of the entry is already in the history.
    #[error("the transaction of the entry at {0} is done already: whoever wrote it is broken")]
    Twice(Slot),
    /// The diff does not fit the state.
    #[error(transparent)]
    Misfit(#[from] Misfit),
    /// The diff produces a state whose hash differs from the hash in the entry.
    #[error("the entry at {0} makes another state than it says: fetch it from somebody else")]
    OtherState(Slot),
    /// The checkpoint cannot be decoded.
    #[error(transparent)]
    Checkpoint(#[from] BadSnapshot),
    /// The remembered transactions of the checkpoint cannot come from a valid history.
    #[error("the checkpoint at {0} has transactions that are out of order: fetch it from somebody else")]
    Disorder(Slot),
}

impl<M: Replicated> State<M> {
    /// Creates the state before the first entry, with these voters.
    pub fn new(voters: Configuration) -> Self {
        let (machine, index, hash) = (M::default(), Slot(0), Hash::default());
        let (term, start, done) = (Term::none(), Slot(1), Done::default());
        Self { machine, index, hash, term, start, voters, done }
    }

    /// Returns the machine in its current state.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// Returns the index of the last applied entry.
    pub fn index(&self) -> Slot {
        self.index
    }

    /// Returns the hash of the last applied entry, which covers all earlier entries.
    pub fn hash(&self) -> Hash {
        self.hash
    }

    /// Returns the configuration that decides the next entry.
    pub fn voters(&self) -> &Configuration {
        &self.voters
    }

    /// Returns the index and the result of a transaction, or `None` if the id is unknown or forgotten.
    pub fn done(&self, tx_id: TxId) -> Option<(Slot, &Result<M::Answer, Failed>)> {
        self.done.get(tx_id)
    }

    /// Applies the next entry.
    pub fn apply(&mut self, slot: Slot, entry: &Logged<M>) -> Result<(), Tear> {
        let mut over = M::Overlay::default();
        let hash = self.fits(slot, entry)?;
        if let Payload::Value(value) = &entry.payload {
            self.machine.lay(&mut over, value.diff.clone())?;
        }
        self.settle(slot, hash, entry, &mut over)
    }

    /// Applies the next entry, whose diff is the oldest diff of this overlay.
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

    /// Checks that this is the next entry, and returns its hash.
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
        (self.index, self.hash, self.term) = (slot, hash, entry.term);
        match &entry.payload {
            Payload::Value(value) => self.done.add(slot, value.tx_id, value.result.clone()),
            Payload::Configuration(voters) => (self.start, self.voters) = (slot.next(), voters.clone()),
            Payload::Barrier => {}
        }
        self.done.forget(slot);
    }

    /// Returns the whole state as a checkpoint, without a proof and without configuration certificates.
    pub(crate) fn checkpoint(&self) -> Checkpoint<M::Answer> {
        let (machine, done) = (self.machine.snapshot(), self.done.rows());
        Checkpoint { hash: self.hash, machine, done, proof: None, stones: Vec::new() }
    }

    /// Returns the head of the applied history.
    pub fn head(&self) -> Head {
        Head {
            index: self.index,
            hash: self.hash,
            term: self.term,
            start: self.start,
            voters: self.voters.clone(),
            machine: self.machine.hash(&M::Overlay::default()),
            done: self.done.hash(),
        }
    }

    /// Restores the state from a snapshot of the log.
    pub(crate) fn restore(snapshot: &log::Snapshot<Checkpoint<M::Answer>>) -> Result<Self, Tear> {
        let log::Mark { slot: index, term } = snapshot.last;
        let (start, voters) = (snapshot.start, snapshot.configuration.clone());
        if index == Slot(0) {
            return Ok(Self::new(voters));
        }
        let Checkpoint { hash, machine, done, .. } = &snapshot.state;
        let machine = M::restore(machine)?;
        let done = Done::of(done, index).ok_or(Tear::Disorder(index))?;
        Ok(Self { machine, index, hash: *hash, term, start, voters, done })
    }
}

impl<A> Default for Checkpoint<A> {
    /// The checkpoint before the first entry.
    fn default() -> Self {
        let (hash, machine, done) = (Hash::default(), Vec::new(), Vec::new());
        Self { hash, machine, done, proof: None, stones: Vec::new() }
    }
}

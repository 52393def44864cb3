//! What the entries have made of a machine.

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

/// A machine, how far the history has brought it, and which transactions it has seen lately.
///
/// It takes the entry after the last one, on top of the same hash, and no other; the index never moves without the diff.
#[derive(Clone, Debug)]
pub struct State<M: Replicated> {
    pub(crate) machine: M,
    pub(crate) index: Slot,
    pub(crate) hash: Hash,
    /// In whose term the last entry was written.
    term: Term,
    /// The first place that the voters decide.
    pub(crate) start: Slot,
    pub(crate) voters: Configuration,
    pub(crate) done: Done<M::Answer>,
}

/// A whole state, to be stored and sent in the place of entries.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Checkpoint<A> {
    pub(crate) hash: Hash,
    pub(crate) machine: Vec<u8>,
    pub(crate) done: Vec<Row<A>>,
    /// What shows that it is the state there; not yet, if there is none.
    pub(crate) proof: Option<Certificate>,
    /// One certificate for each of the configurations that came after the first, by which anybody who knows an earlier
    /// one can trust a later one. They prove themselves, and are not part of the state.
    pub(crate) stones: Vec<Certificate>,
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
    /// The transactions of a checkpoint are none that a history could have.
    #[error("the checkpoint at {0} has transactions that are out of order: fetch it from somebody else")]
    Disorder(Slot),
}

impl<M: Replicated> State<M> {
    /// Nothing has happened yet, and these decide.
    pub fn new(voters: Configuration) -> Self {
        let (machine, index, hash) = (M::default(), Slot(0), Hash::default());
        let (term, start, done) = (Term::none(), Slot(1), Done::default());
        Self { machine, index, hash, term, start, voters, done }
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
        (self.index, self.hash, self.term) = (slot, hash, entry.term);
        match &entry.payload {
            Payload::Value(value) => self.done.add(slot, value.tx_id, value.result.clone()),
            Payload::Configuration(voters) => (self.start, self.voters) = (slot.next(), voters.clone()),
            Payload::Barrier => {}
        }
        self.done.forget(slot);
    }

    /// The whole of it.
    pub(crate) fn checkpoint(&self) -> Checkpoint<M::Answer> {
        let (machine, done) = (self.machine.snapshot(), self.done.rows());
        Checkpoint { hash: self.hash, machine, done, proof: None, stones: Vec::new() }
    }

    /// Where the history has come to.
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

    /// The state that a snapshot of the log stands for.
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
    /// What stands before the first entry.
    fn default() -> Self {
        let (hash, machine, done) = (Hash::default(), Vec::new(), Vec::new());
        Self { hash, machine, done, proof: None, stones: Vec::new() }
    }
}

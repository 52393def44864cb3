//! Everything that was decided, carried out.

use std::collections::{BTreeMap, VecDeque};

use holdoff_paxos::{Configuration, Slot};
use serde::{Deserialize, Serialize};

use crate::machine::{Around, Effect, Invalid, Machine};
use crate::{CouncilId, Digest, Operation, OperationId, PublicKey, Snapshot, Value, Verifier};

/// A machine after some slots, and what is needed to go on: every device has the same at the same slot.
#[derive(Clone, Debug)]
pub struct Decided<M> {
    council: CouncilId,
    machine: M,
    applied: Slot,
    compacted: Slot,
    chain: Digest,
    /// What became of operations, in the order of the slots: so long as they could still happen again.
    ended: VecDeque<(Slot, OperationId)>,
    fates: BTreeMap<OperationId, Ended>,
    /// What was born before this slot may have ended without anybody remembering: it never happens.
    remembered: Slot,
}

/// As many ends of operations are remembered: so many fit into a snapshot, whatever the machine adds to them.
pub(crate) const REMEMBERED: usize = 8192;

/// What became of an operation, once and for all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Ended {
    /// It was carried out in this slot.
    Applied(Slot),
    /// It was taken back in this slot, and will never happen.
    Withdrawn(Slot),
}

/// What a slot has brought.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Applied {
    /// Which slot.
    pub slot: Slot,
    /// Who put the value together.
    pub author: PublicKey,
    /// What became of its operations; a value that does not fit has none.
    pub operations: Vec<(Operation, Result<(), Invalid>)>,
    /// Why all of it was skipped, if it was.
    pub skipped: Option<Invalid>,
    /// Whether a snapshot is to be taken now.
    pub compacts: bool,
}

/// What a snapshot holds.
#[derive(Serialize, Deserialize)]
struct Kept {
    council: CouncilId,
    compacted: Slot,
    chain: Digest,
    ended: Vec<(OperationId, Ended)>,
    machine: Vec<u8>,
}

impl<M: Machine> Decided<M> {
    /// Before the first slot.
    pub fn new(council: CouncilId, machine: M) -> Self {
        let chain = Digest::of(&[b"holdoff council", &council.0, &machine.snapshot()]);
        let [applied, compacted] = [Slot(0); 2];
        let (ended, fates, remembered) = (VecDeque::new(), BTreeMap::new(), Slot(0));
        Self { council, machine, applied, compacted, chain, ended, fates, remembered }
    }

    /// The machine.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// Which council.
    pub fn council(&self) -> CouncilId {
        self.council
    }

    /// The last slot that was carried out.
    pub fn applied(&self) -> Slot {
        self.applied
    }

    /// The last slot after which everybody took a snapshot.
    pub fn compacted(&self) -> Slot {
        self.compacted
    }

    /// What the whole history hashes to. Equal at the same slot, on every device.
    pub fn chain(&self) -> Digest {
        self.chain
    }

    /// What it hashes to once this is decided in the next slot.
    pub fn chain_after(&self, value: &Value) -> Digest {
        Digest::of(&[b"holdoff chain", &self.chain.0, &value.digest().0])
    }

    /// What became of an operation, if it has ended and is remembered.
    pub fn fate(&self, id: &OperationId) -> Option<Ended> {
        self.fates.get(id).copied()
    }

    /// Whether what was born after this slot can still happen, and would be remembered if it had.
    pub fn remembers(&self, born: Slot) -> bool {
        born >= self.remembered && self.applied.0 < born.0.saturating_add(Operation::LIFETIME)
    }

    /// Who decides the next slot.
    pub fn configuration(&self) -> Option<Configuration> {
        Configuration::new(self.machine.acceptors().keys().copied()).ok()
    }

    /// What an operation in the next slot finds.
    pub fn around(&self) -> Around {
        Around { slot: self.applied.next(), born: self.applied, compacted: self.compacted }
    }

    /// Whether an operation can be carried out in the next slot, tried on this machine.
    pub fn check(
        &self,
        machine: &mut M,
        operation: &Operation,
        verifier: &dyn Verifier,
    ) -> Result<Effect, Invalid> {
        let around = Around { born: operation.born, ..self.around() };
        if let Some(ended) = self.fates.get(&operation.id) {
            return Err(Invalid(match ended {
                Ended::Applied(slot) => format!("it was carried out in slot {slot} already"),
                Ended::Withdrawn(slot) => format!("it was taken back in slot {slot}"),
            }));
        }
        if !operation.may_happen_in(around.slot) || !self.remembers(operation.born) {
            return Err(Invalid::because("it is too old"));
        }
        if !operation.is_signed(self.council, verifier) {
            return Err(Invalid::because("its author has not signed it"));
        }
        machine.apply(&operation.author, &operation.body, &around)
    }

    /// Carries out what the next slot has decided. Whatever is invalid is skipped, by everybody alike.
    pub fn apply(&mut self, value: &Value, verifier: &dyn Verifier) -> Applied {
        let slot = self.applied.next();
        let mut applied =
            Applied { slot, author: value.author, operations: Vec::new(), skipped: None, compacts: false };
        match self.read(value, slot, verifier) {
            Err(invalid) => applied.skipped = Some(invalid),
            Ok(batch) => {
                let mut machine = self.machine.clone();
                for operation in batch.operations {
                    let result = self.check(&mut machine, &operation, verifier);
                    if result.is_ok() {
                        self.end(operation.id, Ended::Applied(slot));
                    }
                    applied.compacts |= result == Ok(Effect::Compact);
                    applied.operations.push((operation, result.map(drop)));
                }
                self.machine = machine;
                for id in batch.withdrawn {
                    if !self.fates.contains_key(&id) {
                        self.end(id, Ended::Withdrawn(slot));
                    }
                }
            }
        }
        self.chain = self.chain_after(value);
        self.applied = slot;
        if applied.compacts {
            self.compacted = slot;
        }
        self.forget();
        applied
    }

    fn read(&self, value: &Value, slot: Slot, verifier: &dyn Verifier) -> Result<crate::Batch, Invalid> {
        if !value.is_signed(self.council, slot, verifier) {
            return Err(Invalid::because("its author has not signed it"));
        }
        if !self.machine.may_propose(&value.author) {
            return Err(Invalid::because("its author is not a member"));
        }
        let batch = value.batch().ok_or_else(|| Invalid::because("it cannot be read"))?;
        if batch.previous != self.chain {
            return Err(Invalid::because("it belongs to another history"));
        }
        Ok(batch)
    }

    fn end(&mut self, id: OperationId, ended: Ended) {
        let (Ended::Applied(slot) | Ended::Withdrawn(slot)) = ended;
        self.ended.push_back((slot, id));
        self.fates.insert(id, ended);
    }

    /// Forgets what is too old, and what is too much. Neither can happen again: whatever has ended in a slot was born
    /// before it, and what was born before the oldest end that is remembered is refused. That follows from what is
    /// remembered alone, so everybody refuses alike, also who has taken over a snapshot.
    fn forget(&mut self) {
        let is_old = |slot: Slot| slot.0 + Operation::LIFETIME < self.applied.0;
        while let Some((slot, id)) = self.ended.front().copied()
            && (is_old(slot) || self.ended.len() > REMEMBERED)
        {
            self.ended.pop_front();
            self.fates.remove(&id);
        }
        let oldest = self.ended.front().filter(|_| self.ended.len() == REMEMBERED);
        self.remembered = oldest.map_or(Slot(0), |(slot, _)| *slot);
    }

    /// The state after the last slot, the same bytes on every device.
    pub fn snapshot(&self) -> Snapshot {
        let fate = |(_, id): &(Slot, OperationId)| Some((*id, *self.fates.get(id)?));
        let kept = Kept {
            council: self.council,
            compacted: self.compacted,
            chain: self.chain,
            ended: self.ended.iter().filter_map(fate).collect(),
            machine: self.machine.snapshot(),
        };
        let bytes = postcard::to_allocvec(&kept).unwrap_or_default();
        Snapshot { slot: self.applied, bytes: bytes.into() }
    }

    /// The state of a snapshot, if it is one of this council's.
    pub fn restore(council: CouncilId, snapshot: &Snapshot) -> Option<Self> {
        let kept: Kept = postcard::from_bytes(&snapshot.bytes).ok()?;
        let slot_of = |(id, ended): &(OperationId, Ended)| match ended {
            Ended::Applied(slot) | Ended::Withdrawn(slot) => (*slot, *id),
        };
        let mut restored = Self {
            council: kept.council,
            machine: M::restore(&kept.machine)?,
            applied: snapshot.slot,
            compacted: kept.compacted,
            chain: kept.chain,
            ended: kept.ended.iter().map(slot_of).collect(),
            fates: kept.ended.into_iter().collect(),
            remembered: Slot(0),
        };
        restored.forget();
        (restored.council == council).then_some(restored)
    }
}

#[cfg(test)]
mod tests;

//! The decided state: all decided slots, applied to the machine.

use std::collections::{BTreeMap, VecDeque};

use holdoff_paxos::{Configuration, Slot};
use serde::{Deserialize, Serialize};

use crate::machine::{Around, Effect, Invalid, Machine};
use crate::{CouncilId, Digest, Operation, OperationId, PublicKey, Snapshot, Value, Verifier};

/// The machine after a slot, with the data needed to continue. At the same slot it is equal on every device.
#[derive(Clone, Debug)]
pub struct Decided<M> {
    council: CouncilId,
    machine: M,
    applied: Slot,
    compacted: Slot,
    chain: Digest,
    /// The ended operations in the order of their slots, for as long as they could otherwise be applied again.
    ended: VecDeque<(Slot, OperationId)>,
    fates: BTreeMap<OperationId, Ended>,
    /// An operation with a birth slot before this one may have ended with a forgotten outcome, so it is never
    /// applied.
    remembered: Slot,
}

/// The maximum number of remembered outcomes. So many fit into a snapshot beside the largest machine state.
pub(crate) const REMEMBERED: usize = 8192;

/// The final outcome of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Ended {
    /// The operation was applied in this slot.
    Applied(Slot),
    /// The operation was withdrawn in this slot and will never be applied.
    Withdrawn(Slot),
}

/// The result of applying a slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Applied {
    /// The slot.
    pub slot: Slot,
    /// The author of the value.
    pub author: PublicKey,
    /// The operations with their results. A skipped value has none.
    pub operations: Vec<(Operation, Result<(), Invalid>)>,
    /// The reason for which the whole value was skipped, if it was.
    pub skipped: Option<Invalid>,
    /// Whether the device must take a snapshot now.
    pub compacts: bool,
}

/// The content of a snapshot.
#[derive(Serialize, Deserialize)]
struct Kept {
    council: CouncilId,
    compacted: Slot,
    chain: Digest,
    ended: Vec<(OperationId, Ended)>,
    machine: Vec<u8>,
}

impl<M: Machine> Decided<M> {
    /// Creates the state before the first slot.
    pub fn new(council: CouncilId, machine: M) -> Self {
        let chain = Digest::of(&[b"holdoff council", &council.0, &machine.snapshot()]);
        let [applied, compacted] = [Slot(0); 2];
        let (ended, fates, remembered) = (VecDeque::new(), BTreeMap::new(), Slot(0));
        Self { council, machine, applied, compacted, chain, ended, fates, remembered }
    }

    /// Returns the machine.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// Returns the council's id.
    pub fn council(&self) -> CouncilId {
        self.council
    }

    /// Returns the last applied slot.
    pub fn applied(&self) -> Slot {
        self.applied
    }

    /// Returns the slot of the last compaction, after which every device took a snapshot.
    pub fn compacted(&self) -> Slot {
        self.compacted
    }

    /// Returns the hash of the whole history. At the same slot it is equal on every device.
    pub fn chain(&self) -> Digest {
        self.chain
    }

    /// Returns the hash of the history after this value is decided in the next slot.
    pub fn chain_after(&self, value: &Value) -> Digest {
        Digest::of(&[b"holdoff chain", &self.chain.0, &value.digest().0])
    }

    /// Returns the outcome of an operation, if it has ended and is remembered.
    pub fn fate(&self, id: &OperationId) -> Option<Ended> {
        self.fates.get(id).copied()
    }

    /// Returns whether an operation with this birth slot can still be applied, and its outcome would be remembered
    /// if it had ended.
    pub fn remembers(&self, born: Slot) -> bool {
        born >= self.remembered && self.applied.0 < born.0.saturating_add(Operation::LIFETIME)
    }

    /// Returns the configuration that decides the next slot.
    pub fn configuration(&self) -> Option<Configuration> {
        Configuration::new(self.machine.acceptors().keys().copied()).ok()
    }

    /// Returns the position of an operation in the next slot.
    pub fn around(&self) -> Around {
        Around { slot: self.applied.next(), born: self.applied, compacted: self.compacted }
    }

    /// Checks whether an operation can be applied in the next slot, by applying it to this machine.
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

    /// Applies the decided value of the next slot. Every device skips invalid values and operations in the same
    /// way.
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

    /// Removes the outcomes that are too old or exceed the limit. Their operations cannot be applied again: an
    /// operation that ended in a slot was born before it, and operations born before the oldest remembered outcome
    /// are rejected. The rule depends only on the remembered outcomes, so every device rejects the same operations,
    /// even after it has installed a snapshot.
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

    /// Returns a snapshot of the state after the last slot. It has the same bytes on every device.
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

    /// Restores the state from a snapshot, if the snapshot belongs to this council.
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

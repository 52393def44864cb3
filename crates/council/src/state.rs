//! The decided state: all decided slots, applied to the machine.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use holdoff_paxos::slot::Vote;
use holdoff_paxos::{Configuration, Slot};
use serde::{Deserialize, Serialize};

use crate::machine::{Effect, InvalidOperation, Machine, Position};
use crate::value::Batch;
use crate::{
    AcceptorRequest, AccessChange, CouncilId, CouncilSnapshot, Digest, Founding, OperationId, PublicKey,
    RecoveredFrom, SignedAccess, SignedOperation, SlotValue, Verifier,
};

/// The machine after a slot, with the data needed to continue. At the same slot it is equal on every device.
#[derive(Clone, Debug)]
pub struct CouncilState<M> {
    council: CouncilId,
    founding: Founding,
    machine: M,
    applied: Slot,
    compacted: Slot,
    /// The hash of the snapshot after the last compaction.
    compacted_digest: Digest,
    chain: Digest,
    /// The slot of the last change of the members.
    access: Slot,
    /// The latest changes of the members, for acceptors that have missed them.
    changes: VecDeque<SignedAccess>,
    /// The ended operations in the order of their slots, for as long as they could otherwise be applied again.
    ended: VecDeque<(Slot, OperationId)>,
    ends: BTreeMap<OperationId, OperationEnd>,
    /// An operation with a birth slot before this one may have ended with a forgotten outcome, so it is never
    /// applied.
    remembered: Slot,
}

/// The maximum number of remembered outcomes. So many fit into a snapshot beside the largest machine state.
pub(crate) const REMEMBERED: usize = 8192;
/// The maximum number of remembered changes of the members, and of keys in them. An acceptor that has missed more must be
/// removed, and added again with an empty store.
const CHANGES: usize = 128;
const CHANGED_KEYS: usize = 512;
/// The maximum size of a snapshot without the machine and the remembered outcomes: the remembered changes, the founding
/// record and the fixed fields.
pub(crate) const OVERHEAD: usize = CHANGES * 160 + CHANGED_KEYS * 32 + Founding::MAX_MEMBERS * 32 + 512;

/// The final outcome of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum OperationEnd {
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
    pub operations: Vec<(SignedOperation, Result<(), InvalidOperation>)>,
    /// The reason for which the whole value was skipped, if it was.
    pub skipped: Option<InvalidOperation>,
    /// Whether the device must take a snapshot now.
    pub compacts: bool,
}

/// A value with its effects.
struct CheckedValue<M> {
    batch: Batch,
    machine: M,
    results: Vec<Result<Effect, InvalidOperation>>,
}

/// The content of a snapshot.
#[derive(Serialize, Deserialize)]
struct SnapshotContent {
    founding: Founding,
    compacted: Slot,
    /// Zeros in the snapshot of the last compaction itself.
    compacted_digest: Digest,
    chain: Digest,
    access: Slot,
    changes: VecDeque<SignedAccess>,
    ended: Vec<(OperationId, OperationEnd)>,
    machine: Vec<u8>,
}

impl<M: Machine> CouncilState<M> {
    /// Founds a council: creates the state before the first slot. The nonce distinguishes this council from others.
    pub fn found(machine: M, nonce: [u8; 16]) -> Self {
        let founding = founding(&machine, nonce, None);
        let council = founding.council();
        Self {
            council,
            founding,
            machine,
            applied: Slot(0),
            compacted: Slot(0),
            compacted_digest: Digest::default(),
            chain: Digest::of(&[b"holdoff council", &council.0]),
            access: Slot(0),
            changes: VecDeque::new(),
            ended: VecDeque::new(),
            ends: BTreeMap::new(),
            remembered: Slot(0),
        }
    }

    /// Founds a council that continues this one with this machine, which has other acceptors. Its slots come after those of
    /// this council, and it remembers the same operations.
    #[must_use]
    pub fn recover(&self, machine: M, nonce: [u8; 16]) -> Self {
        let Self { council, applied, chain, .. } = *self;
        let founding = founding(&machine, nonce, Some(RecoveredFrom { council, slot: applied, chain }));
        let council = founding.council();
        let mut state = Self {
            council,
            founding,
            machine,
            compacted: applied,
            chain: Digest::of(&[b"holdoff council", &council.0]),
            access: applied,
            changes: VecDeque::new(),
            ..self.clone()
        };
        state.compacted_digest = state.snapshot().digest();
        state
    }

    /// Applies the values that these acceptors have accepted in the next slots, although they are no majority. Prefers a value
    /// that a later one extends, and otherwise the one with the highest ballot. Returns the number of slots at the end that no
    /// later value extends: they may not be decided.
    pub fn adopt(&mut self, votes: &BTreeMap<Slot, Vec<Vote<SlotValue>>>, verifier: &dyn Verifier) -> u64 {
        let mut unproven = 0;
        loop {
            let slot = self.applied.next();
            let in_slot = |slot| votes.get(&slot).into_iter().flatten();
            let extends = |value: &SlotValue, later: &SlotValue| {
                let is_member = self.machine.may_propose(&later.author);
                is_member
                    && later.is_signed(self.council, slot.next(), verifier)
                    && later.batch().is_some_and(|batch| batch.previous == self.chain_after(value))
            };
            let is_proven = |vote: &&Vote<SlotValue>| {
                in_slot(slot.next()).any(|later| extends(&vote.value, &later.value))
            };
            let proven = in_slot(slot).find(is_proven);
            let is_valid = |vote: &&Vote<SlotValue>| self.read(&vote.value, slot, verifier).is_ok();
            let highest = || in_slot(slot).filter(is_valid).max_by_key(|vote| vote.ballot);
            let Some(Vote { value, .. }) = proven.or_else(highest) else { return unproven };
            unproven = if proven.is_some() { 0 } else { unproven + 1 };
            let value = value.clone();
            self.apply(&value, verifier);
        }
    }

    /// Returns the machine.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// Returns the council's id.
    pub fn council(&self) -> CouncilId {
        self.council
    }

    /// Returns the founding record.
    pub fn founding(&self) -> &Founding {
        &self.founding
    }

    /// Returns the slot of the last change of the members.
    pub fn access(&self) -> Slot {
        self.access
    }

    /// Returns the slot of the last change of the members up to this slot, as far as the changes are remembered.
    pub(crate) fn access_at(&self, slot: Slot) -> Slot {
        let later = self.changes.iter().find(|decided| decided.slot > slot);
        later.map_or(self.access, |decided| decided.change.after)
    }

    /// Returns the request that introduces the council to an acceptor: the members before the remembered changes, and the
    /// changes. So the acceptor knows who had to endorse the snapshots of that time.
    pub(crate) fn introduction(&self) -> AcceptorRequest {
        let (mut members, founding) = (self.machine.member_keys(), self.founding.clone());
        self.changes.iter().rev().for_each(|decided| decided.change.undo(&mut members));
        let access = self.changes.front().map_or(self.access, |first| first.change.after);
        let (members, changes) = (members.into_iter().collect(), self.changes.iter().cloned().collect());
        AcceptorRequest::Introduce { founding, access, members, changes }
    }

    /// Returns the changes of the members after the change in this slot. Returns none if they are not remembered, or if
    /// no change was in this slot.
    pub fn access_after(&self, slot: Slot) -> Vec<SignedAccess> {
        let changes = self.changes.iter().skip_while(|decided| decided.change.after != slot);
        changes.cloned().collect()
    }

    /// Returns the change of the members from this state to a later one of the machine.
    pub(crate) fn access_change(&self, later: &M) -> Option<AccessChange> {
        AccessChange::between(self.access, &self.machine.member_keys(), &later.member_keys())
    }

    /// Returns the last applied slot.
    pub fn applied(&self) -> Slot {
        self.applied
    }

    /// Returns the slot of the last compaction, after which every device took a snapshot.
    pub fn compacted(&self) -> Slot {
        self.compacted
    }

    /// Returns the hash of the snapshot after the last compaction.
    pub fn compacted_digest(&self) -> Digest {
        self.compacted_digest
    }

    /// Returns the hash of the whole history. At the same slot it is equal on every device.
    pub fn chain(&self) -> Digest {
        self.chain
    }

    /// Returns the hash of the history after this value is decided in the next slot.
    pub fn chain_after(&self, value: &SlotValue) -> Digest {
        Digest::of(&[b"holdoff chain", &self.chain.0, &value.digest().0])
    }

    /// Returns the outcome of an operation, if it has ended and is remembered.
    pub fn operation_end(&self, id: &OperationId) -> Option<OperationEnd> {
        self.ends.get(id).copied()
    }

    /// Returns whether an operation with this birth slot can still be applied, and its outcome would be remembered
    /// if it had ended.
    pub fn remembers(&self, birth_slot: Slot) -> bool {
        birth_slot >= self.remembered
            && self.applied.0 < birth_slot.0.saturating_add(SignedOperation::LIFETIME)
    }

    /// Returns the configuration that decides the next slot.
    pub fn configuration(&self) -> Option<Configuration> {
        Configuration::new(self.machine.acceptors().keys().copied()).ok()
    }

    /// Returns the position of an operation in the next slot.
    pub fn position(&self) -> Position {
        Position { slot: self.applied.next(), birth_slot: self.applied, compacted: self.compacted }
    }

    /// Checks whether an operation can be applied in the next slot, by applying it to this machine.
    pub fn check(
        &self,
        machine: &mut M,
        operation: &SignedOperation,
        verifier: &dyn Verifier,
    ) -> Result<Effect, InvalidOperation> {
        let position = Position { birth_slot: operation.birth_slot, ..self.position() };
        if let Some(ended) = self.ends.get(&operation.id) {
            return Err(InvalidOperation(match ended {
                OperationEnd::Applied(slot) => format!("it was already applied in slot {slot}"),
                OperationEnd::Withdrawn(slot) => format!("it was withdrawn in slot {slot}"),
            }));
        }
        if !operation.may_happen_in(position.slot) || !self.remembers(operation.birth_slot) {
            return Err(InvalidOperation::because("it has expired"));
        }
        if !operation.is_signed(self.council, verifier) {
            return Err(InvalidOperation::because("its author has not signed it"));
        }
        machine.apply(&operation.author, &operation.body, &position)
    }

    /// Applies the decided value of the next slot. Every device skips invalid values and operations in the same
    /// way.
    pub fn apply(&mut self, value: &SlotValue, verifier: &dyn Verifier) -> Applied {
        let slot = self.applied.next();
        let mut applied =
            Applied { slot, author: value.author, operations: Vec::new(), skipped: None, compacts: false };
        match self.read(value, slot, verifier) {
            Err(invalid) => applied.skipped = Some(invalid),
            Ok(CheckedValue { batch, machine, results }) => {
                self.note_access(value.signed_access(slot));
                applied.compacts = value.compacts;
                self.machine = machine;
                for (operation, result) in batch.operations.into_iter().zip(results) {
                    if result.is_ok() {
                        self.end(operation.id, OperationEnd::Applied(slot));
                    }
                    applied.operations.push((operation, result.map(drop)));
                }
                for id in batch.withdrawn {
                    if !self.ends.contains_key(&id) {
                        self.end(id, OperationEnd::Withdrawn(slot));
                    }
                }
            }
        }
        self.chain = self.chain_after(value);
        self.applied = slot;
        self.forget();
        if applied.compacts {
            self.compacted = slot;
            self.compacted_digest = self.snapshot().digest();
        }
        applied
    }

    fn note_access(&mut self, decided: Option<SignedAccess>) {
        let Some(decided) = decided else { return };
        self.access = decided.slot;
        self.changes.push_back(decided);
        let mut keys: usize = self.changes.iter().map(|decided| decided.change.keys()).sum();
        while (self.changes.len() > CHANGES || (keys > CHANGED_KEYS && self.changes.len() > 1))
            && let Some(oldest) = self.changes.pop_front()
        {
            keys -= oldest.change.keys();
        }
    }

    /// Checks the value of the next slot.
    fn read(
        &self,
        value: &SlotValue,
        slot: Slot,
        verifier: &dyn Verifier,
    ) -> Result<CheckedValue<M>, InvalidOperation> {
        if !value.is_signed(self.council, slot, verifier) {
            return Err(InvalidOperation::because("its author has not signed it"));
        }
        if !self.machine.may_propose(&value.author) {
            return Err(InvalidOperation::because("its author is not a member"));
        }
        let batch = value.batch().ok_or_else(|| InvalidOperation::because("it cannot be decoded"))?;
        if batch.previous != self.chain {
            return Err(InvalidOperation::because("it extends another history"));
        }
        let (mut machine, mut results, mut done) = (self.machine.clone(), Vec::new(), BTreeSet::new());
        for operation in &batch.operations {
            let result = if done.contains(&operation.id) {
                Err(InvalidOperation::because("the same value contains it twice"))
            } else {
                self.check(&mut machine, operation, verifier)
            };
            done.extend(result.is_ok().then_some(operation.id));
            results.push(result);
        }
        if value.access != self.access_change(&machine) {
            return Err(InvalidOperation::because(
                "its author has signed another change of the members than its operations make",
            ));
        }
        if value.compacts != results.contains(&Ok(Effect::Compact)) {
            return Err(InvalidOperation::because("its author has signed wrongly whether it compacts"));
        }
        Ok(CheckedValue { batch, machine, results })
    }

    fn end(&mut self, id: OperationId, ended: OperationEnd) {
        let (OperationEnd::Applied(slot) | OperationEnd::Withdrawn(slot)) = ended;
        self.ended.push_back((slot, id));
        self.ends.insert(id, ended);
    }

    /// Removes the outcomes that are too old or exceed the limit. Their operations cannot be applied again: an
    /// operation that ended in a slot was born before it, and operations born before the oldest remembered outcome
    /// are rejected. The rule depends only on the remembered outcomes, so every device rejects the same operations,
    /// even after it has installed a snapshot.
    fn forget(&mut self) {
        let is_old = |slot: Slot| slot.0 + SignedOperation::LIFETIME < self.applied.0;
        while let Some((slot, id)) = self.ended.front().copied()
            && (is_old(slot) || self.ended.len() > REMEMBERED)
        {
            self.ended.pop_front();
            self.ends.remove(&id);
        }
        let oldest = self.ended.front().filter(|_| self.ended.len() == REMEMBERED);
        self.remembered = oldest.map_or(Slot(0), |(slot, _)| *slot);
    }

    /// Returns a snapshot of the state after the last slot. It has the same bytes on every device.
    pub fn snapshot(&self) -> CouncilSnapshot {
        let end = |(_, id): &(Slot, OperationId)| Some((*id, *self.ends.get(id)?));
        let is_compaction = self.compacted == self.applied;
        let content = SnapshotContent {
            founding: self.founding.clone(),
            compacted: self.compacted,
            compacted_digest: if is_compaction { Digest::default() } else { self.compacted_digest },
            chain: self.chain,
            access: self.access,
            changes: self.changes.clone(),
            ended: self.ended.iter().filter_map(end).collect(),
            machine: self.machine.snapshot(),
        };
        let bytes = postcard::to_allocvec(&content).unwrap_or_default();
        CouncilSnapshot { slot: self.applied, bytes: bytes.into() }
    }

    /// Restores the state from a snapshot, if the snapshot belongs to this council.
    pub fn restore(council: CouncilId, snapshot: &CouncilSnapshot) -> Option<Self> {
        let content: SnapshotContent = postcard::from_bytes(&snapshot.bytes).ok()?;
        let slot_of = |(id, ended): &(OperationId, OperationEnd)| match ended {
            OperationEnd::Applied(slot) | OperationEnd::Withdrawn(slot) => (*slot, *id),
        };
        let is_compaction = content.compacted == snapshot.slot && snapshot.slot > Slot(0);
        let mut restored = Self {
            council: content.founding.council(),
            founding: content.founding,
            machine: M::restore(&content.machine)?,
            applied: snapshot.slot,
            compacted: content.compacted,
            compacted_digest: if is_compaction { snapshot.digest() } else { content.compacted_digest },
            chain: content.chain,
            access: content.access,
            changes: content.changes,
            ended: content.ended.iter().map(slot_of).collect(),
            ends: content.ended.into_iter().collect(),
            remembered: Slot(0),
        };
        restored.forget();
        (restored.council == council).then_some(restored)
    }
}

fn founding<M: Machine>(machine: &M, nonce: [u8; 16], recovered: Option<RecoveredFrom>) -> Founding {
    let state = Digest::of(&[b"holdoff state", &machine.snapshot()]);
    Founding { members: machine.member_keys(), state, nonce, recovered }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Signer;
    use crate::machine::{AcceptorInfo, CouncilChange, Members};
    use crate::simulation::TestSigner;

    const ME: TestSigner = TestSigner(PublicKey::from_bytes([101; 32]));

    fn founded() -> CouncilState<Members> {
        let acceptor =
            AcceptorInfo { key: PublicKey::from_bytes([201; 32]), incarnation: 1, address: "a:1".into() };
        CouncilState::found(Members::create(ME.public(), "me", [acceptor]).unwrap(), [7; 16])
    }

    /// A state with the maximum number of members, the longest names, and the maximum number of acceptors.
    fn largest_state() -> CouncilState<Members> {
        let acceptor = |number: u8| AcceptorInfo {
            key: PublicKey::from_bytes([number; 32]),
            incarnation: u64::MAX,
            address: "a".repeat(200),
        };
        let mut members = Members::create(ME.public(), "m".repeat(200), (1..=15).map(acceptor)).unwrap();
        for number in 1..1000_u64 {
            let mut key = [9; 32];
            key[..8].copy_from_slice(&number.to_be_bytes());
            members.admit(PublicKey::from_bytes(key), &"n".repeat(200));
        }
        CouncilState::found(members, [7; 16])
    }

    fn id(number: u64) -> OperationId {
        OperationId(u128::from(number).to_be_bytes())
    }

    /// An operation that leaves members and acceptors unchanged, and can be applied any number of times.
    fn idle(state: &CouncilState<Members>, number: u64) -> SignedOperation {
        let body = postcard::to_allocvec(&CouncilChange::Compact { since: Slot(0) }).unwrap().into();
        SignedOperation::sign(state.council(), id(number), state.applied(), body, &ME)
    }

    fn decide(
        state: &mut CouncilState<Members>,
        operations: Vec<SignedOperation>,
        withdrawn: Vec<OperationId>,
    ) -> Applied {
        let mut machine = state.machine().clone();
        let mut compacts = |operation| state.check(&mut machine, operation, &ME) == Ok(Effect::Compact);
        let compacts = operations.iter().any(&mut compacts);
        let batch = Batch { previous: state.chain(), operations, withdrawn, nonce: 0 };
        let slot = state.applied().next();
        let value = SlotValue::sign(state.council(), slot, &batch, None, compacts, &ME).unwrap();
        state.apply(&value, &ME)
    }

    /// Decides this many operations in slots of up to 64, with ids from `first` on.
    fn fill(state: &mut CouncilState<Members>, first: u64, many: u64) {
        for slot in 0..many.div_ceil(64) {
            let numbers = first + slot * 64..first + many.min((slot + 1) * 64);
            let operations = numbers.map(|number| idle(state, number)).collect();
            let applied = decide(state, operations, Vec::new());
            assert!(applied.skipped.is_none() && applied.operations.iter().all(|(_, done)| done.is_ok()));
        }
    }

    #[test]
    fn a_value_with_a_false_change_of_members_is_skipped() {
        let (state, key) = (founded(), PublicKey::from_bytes([3; 32]));
        let body = postcard::to_allocvec(&CouncilChange::Add { key, name: "new".into() }).unwrap().into();
        let operation = SignedOperation::sign(state.council(), id(1), Slot(0), body, &ME);
        let batch =
            Batch { previous: state.chain(), operations: vec![operation], withdrawn: Vec::new(), nonce: 0 };
        let decide = |access: Option<AccessChange>, compacts| {
            let value = SlotValue::sign(state.council(), Slot(1), &batch, access, compacts, &ME).unwrap();
            let mut after = state.clone();
            let applied = after.apply(&value, &ME);
            (after, applied)
        };
        let truth = AccessChange { after: Slot(0), added: vec![key], removed: Vec::new() };
        let removal = AccessChange { removed: vec![ME.public()], ..truth.clone() };
        for lie in [None, Some(removal), Some(AccessChange { after: Slot(9), ..truth.clone() })] {
            let (after, applied) = decide(lie, false);
            let skipped = applied.skipped.expect("the value is skipped").to_string();
            assert!(skipped.contains("another change of the members"), "{skipped}");
            assert_eq!((applied.author, after.access()), (ME.public(), Slot(0)));
            assert_eq!(after.machine(), state.machine());
            assert_eq!(after.operation_end(&id(1)), None, "the operation can be decided in another slot");
        }
        let skipped = decide(Some(truth.clone()), true).1.skipped.expect("the value is skipped").to_string();
        assert!(skipped.contains("whether it compacts"), "{skipped}");
        let (after, applied) = decide(Some(truth), false);
        assert_eq!((applied.skipped, after.access(), after.access_after(Slot(0)).len()), (None, Slot(1), 1));
        let restored: CouncilState<Members> =
            CouncilState::restore(after.council(), &after.snapshot()).unwrap();
        assert_eq!(restored.access_after(Slot(0)), after.access_after(Slot(0)));
    }

    #[test]
    fn a_snapshot_stays_within_its_limit() {
        let mut state = largest_state();
        fill(&mut state, 0, 30_000);
        let taken_back = (50_000..58_000).map(id).collect();
        decide(&mut state, Vec::new(), taken_back);
        let bytes = state.snapshot().bytes.len();
        assert!(bytes <= CouncilSnapshot::MAX_BYTES, "{bytes}");
        assert!(state.machine().snapshot().len() <= CouncilSnapshot::MACHINE_BYTES);
        // The snapshot must also fit with the highest slot numbers, and with the most changes of members.
        let a_key = |number: u8| PublicKey::from_bytes([number; 32]);
        let (after, added) = (Slot(u64::MAX), vec![a_key(1); CHANGED_KEYS / CHANGES]);
        let change = AccessChange { after, added, removed: Vec::new() };
        let change = SignedAccess {
            slot: Slot(u64::MAX),
            author: a_key(1),
            change,
            batch: state.chain(),
            compacts: false,
            signature: ME.sign(b"", b""),
        };
        let ended = vec![(id(1), OperationEnd::Withdrawn(Slot(u64::MAX))); REMEMBERED];
        let largest = SnapshotContent {
            founding: Founding {
                members: state.machine().member_keys(),
                recovered: Some(RecoveredFrom {
                    council: state.council(),
                    slot: Slot(u64::MAX),
                    chain: state.chain(),
                }),
                ..state.founding().clone()
            },
            compacted: Slot(u64::MAX),
            compacted_digest: state.chain(),
            chain: state.chain(),
            access: Slot(u64::MAX),
            changes: vec![change; CHANGES].into(),
            ended,
            machine: vec![0; CouncilSnapshot::MACHINE_BYTES],
        };
        assert!(postcard::to_allocvec(&largest).unwrap().len() <= CouncilSnapshot::MAX_BYTES);
    }

    #[test]
    fn a_forgotten_operation_is_never_applied_again() {
        let mut state = founded();
        let early = idle(&state, 1);
        assert!(decide(&mut state, vec![early.clone()], Vec::new()).operations[0].1.is_ok());
        assert_eq!(state.operation_end(&early.id), Some(OperationEnd::Applied(Slot(1))));
        fill(&mut state, 100, REMEMBERED as u64);
        assert_eq!(
            state.operation_end(&early.id),
            None,
            "the state has dropped the outcome of the operation"
        );
        assert!(early.may_happen_in(state.applied().next()), "the operation has not expired");
        assert!(!state.remembers(early.birth_slot));
        let again = decide(&mut state, vec![early], Vec::new());
        assert!(again.operations[0].1.is_err(), "the operation is not applied twice");
        // Operations that are born now are still applied.
        let new = idle(&state, 2);
        assert!(decide(&mut state, vec![new], Vec::new()).operations[0].1.is_ok());
    }

    #[test]
    fn a_device_restored_from_a_snapshot_rejects_the_same_operations() {
        let mut state = founded();
        fill(&mut state, 0, 5_000);
        let old = idle(&state, 1_000_000);
        fill(&mut state, 5_000, REMEMBERED as u64 - 10);
        let mut restored: CouncilState<Members> =
            CouncilState::restore(state.council(), &state.snapshot()).unwrap();
        for state in [&mut state, &mut restored] {
            fill(state, 90_000, 64);
            assert!(!state.remembers(old.birth_slot));
            assert!(decide(state, vec![old.clone()], Vec::new()).operations[0].1.is_err());
        }
        assert_eq!(state.snapshot(), restored.snapshot());
    }

    #[test]
    fn a_snapshot_with_too_many_outcomes_is_truncated_on_restore() {
        let mut state = founded();
        fill(&mut state, 0, 64);
        let snapshot = state.snapshot();
        let mut content: SnapshotContent = postcard::from_bytes(&snapshot.bytes).unwrap();
        content.ended = (0..3 * REMEMBERED as u64)
            .map(|number| (id(number), OperationEnd::Applied(Slot(1 + number / 30_000))))
            .collect();
        let bytes = postcard::to_allocvec(&content).unwrap().into();
        let restored: CouncilState<Members> =
            CouncilState::restore(state.council(), &CouncilSnapshot { bytes, ..snapshot }).unwrap();
        assert_eq!((restored.ended.len(), restored.ends.len()), (REMEMBERED, REMEMBERED));
        assert!(restored.snapshot().bytes.len() < CouncilSnapshot::MAX_BYTES);
    }
}

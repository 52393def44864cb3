//! The pending operations of this device, until their outcome is known.

use std::collections::BTreeMap;

use bytes::Bytes;
use holdoff_paxos::Slot;

use super::{Device, Mail, NotCommitted, Out, Outcome, Record};
use crate::machine::{InvalidOperation, Machine, Revalidation};
use crate::{CouncilState, OperationEnd, OperationId, SignedOperation};

/// A pending operation.
#[derive(Clone, Debug)]
pub(super) struct Pending<W> {
    pub(super) change: W,
    pub(super) mail: Option<Mail>,
    birth_slot: Slot,
    /// The number of the submission whose record is not on disk yet; `None` if it is.
    unstored: Option<u64>,
    /// The time at which the caller stops waiting; `None` if no caller waits any more.
    deadline_us: Option<u64>,
    /// Whether other nodes may know the operation. If so, they may have it decided without this device.
    is_exposed: bool,
    /// The outcome to report after the withdrawal, if the operation is being withdrawn.
    withdrawing: Option<Outcome>,
    /// The last built operation, and the slot for which it was built.
    built: Option<(Slot, SignedOperation)>,
    /// Whether the device requested the operation by itself. No caller waits for its outcome, and a late decision
    /// does no harm.
    is_internal: bool,
}

/// An operation that the device has ended by itself, and whose end is not on disk.
#[derive(Clone, Debug)]
pub(super) struct Ending {
    pub(super) number: u64,
    outcome: Outcome,
}

impl<W> Pending<W> {
    /// Creates a pending operation from the record of an earlier process, which may have sent it to any node.
    pub(super) fn restored(change: W, mail: Option<Mail>, birth_slot: Slot) -> Self {
        let (is_exposed, is_internal) = (true, false);
        let (unstored, deadline_us, withdrawing, built) = (None, None, None, None);
        Self { change, mail, birth_slot, unstored, deadline_us, is_exposed, withdrawing, built, is_internal }
    }

    /// Notes that all submissions up to this number are on disk.
    pub(super) fn stored(&mut self, submissions: u64) {
        self.unstored = self.unstored.filter(|submission| *submission > submissions);
    }

    /// Returns whether the device may send the operation to other nodes. If they have it decided, the device must
    /// still have its mail message after a crash.
    fn may_be_sent(&self) -> bool {
        self.unstored.is_none() || self.mail.is_none()
    }

    pub(super) fn wakes_at_us(&self) -> Option<u64> {
        self.deadline_us
    }

    pub(super) fn is_withdrawing(&self) -> bool {
        self.withdrawing.is_some()
    }
}

impl<M: Machine> Device<M> {
    pub(super) fn submit(
        &mut self,
        id: OperationId,
        change: M::Change,
        mail: Option<Mail>,
        deadline_us: u64,
        out: &mut Out<'_, M::Change>,
    ) {
        match self.state.operation_end(&id) {
            Some(OperationEnd::Applied(slot)) => return out.end(id, Outcome::Committed(slot)),
            Some(OperationEnd::Withdrawn(_)) => {
                return out.end(id, Outcome::NotCommitted(NotCommitted::Deadline));
            }
            None => {}
        }
        // The caller of the ended operation has not received its outcome yet. It holds for this caller as well.
        if let Some(ending) = self.ending.get(&id) {
            return out.end_when_stored(id, ending.outcome.clone());
        }
        if let Some(known) = self.pending.get_mut(&id) {
            // A caller waits for the operation again.
            known.deadline_us = known.withdrawing.is_none().then_some(deadline_us);
            return;
        }
        if self.pending.len() >= self.options.pending {
            return out.end(id, Outcome::NotCommitted(NotCommitted::TooMany));
        }
        let birth_slot = self.state.applied();
        let submitted = Record::Submitted { id, change: change.clone(), mail: mail.clone(), birth_slot };
        // With a promise in hand the operation is decided as soon as it could be stored.
        let is_soon_over = mail.is_none() && self.round.is_promised();
        if is_soon_over {
            out.store_later(submitted);
        } else {
            out.store(submitted);
        }
        self.reserve(out);
        self.submissions += 1;
        let fresh = Pending {
            deadline_us: Some(deadline_us),
            unstored: Some(self.submissions),
            is_exposed: false,
            ..Pending::restored(change, mail, birth_slot)
        };
        self.pending.insert(id, fresh);
        self.revalidate(id, out);
    }

    /// Requests a change by itself, unless the limit of pending operations is reached.
    pub(super) fn submit_internal(
        &mut self,
        change: M::Change,
        out: &mut Out<'_, M::Change>,
    ) -> Option<OperationId> {
        if self.pending.len() >= self.options.pending {
            return None;
        }
        let rolls = [(); 4].map(|()| u128::from((out.roll)()));
        let id = OperationId(rolls.into_iter().fold(0, |id, roll| id << 32 | roll).to_be_bytes());
        let birth_slot = self.state.applied();
        out.store(Record::Submitted { id, change: change.clone(), mail: None, birth_slot });
        self.submissions += 1;
        let is_internal = Pending {
            is_exposed: false,
            unstored: Some(self.submissions),
            is_internal: true,
            ..Pending::restored(change, None, birth_slot)
        };
        self.pending.insert(id, is_internal);
        Some(id)
    }

    /// Returns whether the device has operations to propose or to withdraw.
    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Builds the pending operations for the next slot, in the order of their ids.
    pub(super) fn build_own(&mut self) -> Vec<SignedOperation> {
        let (position, council) = (self.state.position(), self.state.council());
        let mut built = Vec::new();
        for (id, pending) in &mut self.pending {
            if pending.is_withdrawing() {
                continue;
            }
            if pending.built.as_ref().is_none_or(|(slot, _)| *slot != position.slot) {
                let Ok(body) = self.state.machine().build(&pending.change, &position) else { continue };
                if body.len() > SignedOperation::MAX_BODY {
                    continue;
                }
                self.counts.rebuilds += u64::from(pending.built.is_some());
                let operation = SignedOperation::sign(council, *id, pending.birth_slot, body, &*self.signer);
                pending.built = Some((position.slot, operation));
            }
            built.extend(pending.built.as_ref().map(|(_, operation)| operation.clone()));
        }
        built
    }

    /// Returns the operations to announce. From now on other devices may have them decided.
    pub(super) fn announce(&mut self) -> Vec<SignedOperation> {
        if !self.options.shares {
            return Vec::new();
        }
        let mut own = self.build_own();
        own.retain(|operation| {
            let pending = self.pending.get(&operation.id);
            pending.is_some_and(|pending| self.state.machine().is_shareable(&pending.change))
        });
        own.truncate(self.options.batch);
        let (mut bytes, mut fitting) = (0, 0);
        for operation in &own {
            bytes += weight(&operation.body);
            if bytes > BATCH_BYTES && fitting > 0 {
                break;
            }
            fitting += 1;
        }
        own.truncate(fitting);
        for operation in &own {
            self.expose(&operation.id);
        }
        own
    }

    pub(super) fn expose(&mut self, id: &OperationId) {
        if let Some(pending) = self.pending.get_mut(id) {
            pending.is_exposed = true;
        }
    }

    /// Returns the operations that are being withdrawn.
    pub(super) fn withdrawn(&self) -> Vec<OperationId> {
        let withdrawing = self.pending.iter().filter(|(_, pending)| pending.is_withdrawing());
        withdrawing.map(|(id, _)| *id).take(self.options.batch).collect()
    }

    /// Ends the operations that the applied slots have ended, and revalidates the others.
    pub(super) fn resolve(&mut self, out: &mut Out<'_, M::Change>) {
        let ids: Vec<_> = self.pending.keys().copied().collect();
        for id in ids {
            match self.state.operation_end(&id) {
                Some(OperationEnd::Applied(slot)) => self.end_as_decided(id, Outcome::Committed(slot), out),
                Some(OperationEnd::Withdrawn(_)) => {
                    let withdrawing = self.pending.get(&id).and_then(|pending| pending.withdrawing.clone());
                    let lost = Outcome::NotCommitted(NotCommitted::Deadline);
                    self.end_as_decided(id, withdrawing.unwrap_or(lost), out);
                }
                None => self.revalidate(id, out),
            }
        }
    }

    fn revalidate(&mut self, id: OperationId, out: &mut Out<'_, M::Change>) {
        let position = self.state.position();
        let Some(pending) = self.pending.get(&id) else { return };
        if self.state.applied() < pending.birth_slot {
            // An earlier process had applied more slots than it stored. The operation must be checked against that
            // later state.
            return;
        }
        let is_member = self.state.machine().may_propose(&self.signer.public());
        if !is_member {
            // Other devices cannot have it applied either.
            let reason = InvalidOperation::because("you are not a member of this council");
            return self.end(id, Outcome::Invalid(reason), out);
        }
        if pending.is_withdrawing() {
            return;
        }
        if !self.state.remembers(pending.birth_slot) {
            self.renew_birth_slot(id, out);
        }
        let Some(pending) = self.pending.get(&id) else { return };
        match self.state.machine().revalidate(&pending.change, &position) {
            Revalidation::Valid => {}
            Revalidation::Satisfied => {
                self.withdraw(id, Outcome::NotCommitted(NotCommitted::AlreadySatisfied), out);
            }
            Revalidation::Invalid(invalid) => self.withdraw(id, Outcome::Invalid(invalid), out),
        }
    }

    /// Submits an expired operation again under the same id. The operation can no longer be applied under its old
    /// birth slot, and it was not: this device has applied every slot since then. So it is still applied at most
    /// once.
    fn renew_birth_slot(&mut self, id: OperationId, out: &mut Out<'_, M::Change>) {
        let Some(pending) = self.pending.get_mut(&id) else { return };
        pending.birth_slot = self.state.applied();
        pending.built = None;
        let (change, mail, birth_slot) = (pending.change.clone(), pending.mail.clone(), pending.birth_slot);
        out.store(Record::Submitted { id, change, mail, birth_slot });
    }

    /// Ends the operations whose outcome is forgotten as unknown, after the device has skipped too many slots. No
    /// node can tell their outcome any more. The device still posts their mail: an added member needs its message,
    /// and no other node reads it.
    pub(super) fn end_forgotten(&mut self, out: &mut Out<'_, M::Change>) {
        let is_lost = |id: &OperationId, pending: &Pending<_>| {
            pending.is_exposed
                && !self.state.remembers(pending.birth_slot)
                && self.state.operation_end(id).is_none()
        };
        let lost: Vec<_> =
            self.pending.iter().filter(|(id, pending)| is_lost(id, pending)).map(|(id, _)| *id).collect();
        self.end_as_unknown(lost, out);
    }

    pub(super) fn end_as_unknown(&mut self, ids: Vec<OperationId>, out: &mut Out<'_, M::Change>) {
        for id in ids {
            self.counts.unknown += 1;
            self.end_as_decided(id, Outcome::Unknown, out);
        }
    }

    /// Withdraws an operation. If other nodes may know it, the withdrawal is final only when a slot decides it.
    pub(super) fn withdraw(&mut self, id: OperationId, outcome: Outcome, out: &mut Out<'_, M::Change>) {
        let Some(pending) = self.pending.get_mut(&id) else { return };
        if !pending.is_exposed || pending.is_internal {
            return self.end(id, outcome, out);
        }
        pending.withdrawing = Some(outcome);
    }

    pub(super) fn expire_deadlines(&mut self, out: &mut Out<'_, M::Change>) {
        let is_late = |pending: &Pending<_>| pending.deadline_us.is_some_and(|at_us| at_us <= out.now_us);
        let late = self.pending.iter().filter(|(_, pending)| is_late(pending));
        let late: Vec<_> = late.map(|(id, _)| *id).collect();
        for id in late {
            let Some(pending) = self.pending.get_mut(&id) else { continue };
            pending.deadline_us = None;
            if pending.is_exposed {
                self.counts.unknown += 1;
                out.end(id, Outcome::Unknown);
            }
            if self.pending.get(&id).is_some_and(|pending| !pending.is_withdrawing()) {
                self.withdraw(id, Outcome::NotCommitted(NotCommitted::Deadline), out);
            }
        }
    }

    /// Ends an operation by a decision of this device alone. The decision must be on disk before the outcome is
    /// reported: otherwise the device would resume the operation after a crash.
    pub(super) fn end(&mut self, id: OperationId, outcome: Outcome, out: &mut Out<'_, M::Change>) {
        let Some(pending) = self.pending.remove(&id) else { return };
        self.announced.forget(&id);
        out.store(Record::Ended { id });
        self.ends += 1;
        self.ending.insert(id, Ending { number: self.ends, outcome: outcome.clone() });
        if !pending.is_internal {
            out.end_when_stored(id, outcome);
        }
    }

    /// Ends an operation by the decision of a slot. If the device forgets this in a crash, it learns it again.
    pub(super) fn end_as_decided(&mut self, id: OperationId, outcome: Outcome, out: &mut Out<'_, M::Change>) {
        let Some(pending) = self.pending.remove(&id) else { return };
        self.announced.forget(&id);
        if let (Outcome::Committed(_) | Outcome::Unknown, Some(mail)) = (&outcome, pending.mail) {
            out.store_later(Record::Mail { id, mail: mail.clone() });
            self.outbox.keep(id, mail);
        }
        out.store_later(Record::Ended { id });
        if !pending.is_internal {
            out.end(id, outcome);
        }
    }

    /// Returns whether the device may send these operations to other nodes now. The records that must be on disk
    /// before are already being stored.
    pub(super) fn may_be_sent(&self, operations: &[SignedOperation]) -> bool {
        let own = operations.iter().filter_map(|operation| self.pending.get(&operation.id));
        own.into_iter().all(Pending::may_be_sent)
    }
}

/// The maximum size of a value with several operations. A single operation may be larger.
pub(super) const BATCH_BYTES: usize = 128 * 1024;

/// Returns the approximate number of bytes that an operation adds to a value.
pub(super) fn weight(body: &Bytes) -> usize {
    body.len() + 128
}

/// Operations of other members that this device may propose together with its own.
#[derive(Clone, Default, Debug)]
pub(super) struct Announced(BTreeMap<OperationId, SignedOperation>);

/// The maximum number of announced operations. The device ignores further ones, because their authors still have
/// them.
const REMEMBERED: usize = 256;

impl Announced {
    pub(super) fn add<M: Machine>(&mut self, operation: SignedOperation, state: &CouncilState<M>) {
        let is_over =
            state.operation_end(&operation.id).is_some() || !operation.may_happen_in(state.applied().next());
        if !is_over && (self.0.len() < REMEMBERED || self.0.contains_key(&operation.id)) {
            self.0.insert(operation.id, operation);
        }
    }

    /// Removes the operations that have ended or expired.
    pub(super) fn tidy<M: Machine>(&mut self, state: &CouncilState<M>) {
        let next = state.applied().next();
        self.0.retain(|id, operation| state.operation_end(id).is_none() && operation.may_happen_in(next));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &SignedOperation> {
        self.0.values()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn forget(&mut self, id: &OperationId) {
        self.0.remove(id);
    }
}

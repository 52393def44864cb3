//! The pending operations of this device, until their outcome is known.

use bytes::Bytes;
use holdoff_paxos::Slot;

use super::{Device, Letter, NotCommitted, Out, Outcome, Record};
use crate::machine::{Invalid, Machine, Standing};
use crate::{Ended, Operation, OperationId, planted};

/// A pending operation.
#[derive(Clone, Debug)]
pub(super) struct Pending<W> {
    pub(super) wish: W,
    letter: Option<Letter>,
    born: Slot,
    /// Whether the operation is on disk.
    is_stored: bool,
    /// The time at which the caller stops waiting; `None` if no caller waits any more.
    deadline_us: Option<u64>,
    /// Whether other nodes may know the operation. If so, they may have it decided without this device.
    exposed: bool,
    /// The outcome to report after the withdrawal, if the operation is being withdrawn.
    leaving: Option<Outcome>,
    /// The last built operation, and the slot for which it was built.
    built: Option<(Slot, Operation)>,
    /// Whether the device requested the operation by itself. No caller waits for its outcome, and a late decision
    /// does no harm.
    quiet: bool,
}

impl<W> Pending<W> {
    /// Creates a pending operation from the record of an earlier process, which may have sent it to any node.
    pub(super) fn restored(wish: W, letter: Option<Letter>, born: Slot) -> Self {
        let (exposed, is_stored, quiet) = (true, true, false);
        let (deadline_us, leaving, built) = (None, None, None);
        Self { wish, letter, born, is_stored, deadline_us, exposed, leaving, built, quiet }
    }

    pub(super) fn is_on_disk(&mut self) {
        self.is_stored = true;
    }

    /// Returns whether the device may send the operation to other nodes. If they have it decided, the device must
    /// still have its mail message after a crash.
    fn may_be_told(&self) -> bool {
        self.is_stored || self.letter.is_none()
    }

    pub(super) fn wakes_at_us(&self) -> Option<u64> {
        self.deadline_us
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }
}

impl<M: Machine> Device<M> {
    pub(super) fn submit(
        &mut self,
        id: OperationId,
        wish: M::Wish,
        letter: Option<Letter>,
        deadline_us: u64,
        out: &mut Out<'_, M::Wish>,
    ) {
        match self.state.fate(&id) {
            Some(Ended::Applied(slot)) => return out.end(id, Outcome::Committed(slot)),
            Some(Ended::Withdrawn(_)) => {
                return out.end(id, Outcome::NotCommitted(NotCommitted::Deadline));
            }
            None => {}
        }
        if let Some(known) = self.pending.get_mut(&id) {
            // A caller waits for the operation again.
            known.deadline_us = known.leaving.is_none().then_some(deadline_us);
            return;
        }
        if self.pending.len() >= self.options.pending {
            return out.end(id, Outcome::NotCommitted(NotCommitted::TooMany));
        }
        let born = self.state.applied();
        let submitted = Record::Submitted { id, wish: wish.clone(), letter: letter.clone(), born };
        // With a promise in hand the operation is decided as soon as it could be stored.
        let is_soon_over = letter.is_none() && self.round.is_promised();
        if is_soon_over {
            out.store_later(submitted);
        } else {
            out.store(submitted);
        }
        self.reserve(out);
        let fresh = Pending {
            deadline_us: Some(deadline_us),
            is_stored: false,
            exposed: false,
            ..Pending::restored(wish, letter, born)
        };
        self.pending.insert(id, fresh);
        self.revalidate(id, out);
    }

    /// Requests a change by itself, unless the limit of pending operations is reached.
    pub(super) fn want_quietly(&mut self, wish: M::Wish, out: &mut Out<'_, M::Wish>) -> Option<OperationId> {
        if self.pending.len() >= self.options.pending {
            return None;
        }
        let rolls = [(); 4].map(|()| u128::from((out.roll)()));
        let id = OperationId(rolls.into_iter().fold(0, |id, roll| id << 32 | roll).to_be_bytes());
        let born = self.state.applied();
        out.store(Record::Submitted { id, wish: wish.clone(), letter: None, born });
        let quiet =
            Pending { exposed: false, is_stored: false, quiet: true, ..Pending::restored(wish, None, born) };
        self.pending.insert(id, quiet);
        Some(id)
    }

    /// Returns whether the device has operations to propose or to withdraw.
    pub(super) fn has_wishes(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Builds the pending operations for the next slot, in the order of their ids.
    pub(super) fn build_own(&mut self) -> Vec<Operation> {
        let (around, council) = (self.state.around(), self.state.council());
        let mut built = Vec::new();
        for (id, pending) in &mut self.pending {
            if pending.is_leaving() {
                continue;
            }
            if pending.built.as_ref().is_none_or(|(slot, _)| *slot != around.slot) {
                let Ok(body) = self.state.machine().build(&pending.wish, &around) else { continue };
                if body.len() > Operation::MAX_BODY {
                    continue;
                }
                self.counts.rebuilds += u64::from(pending.built.is_some());
                let operation = Operation::sign(council, *id, pending.born, body, &*self.signer);
                pending.built = Some((around.slot, operation));
            }
            built.extend(pending.built.as_ref().map(|(_, operation)| operation.clone()));
        }
        built
    }

    /// Returns the operations to announce. From now on other devices may have them decided.
    pub(super) fn announce(&mut self) -> Vec<Operation> {
        if !self.options.shares {
            return Vec::new();
        }
        let mut own = self.build_own();
        own.retain(|operation| {
            let pending = self.pending.get(&operation.id);
            pending.is_some_and(|pending| self.state.machine().is_shareable(&pending.wish))
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
            pending.exposed = true;
        }
    }

    /// Returns the operations that are being withdrawn.
    pub(super) fn withdrawn(&self) -> Vec<OperationId> {
        let leaving = self.pending.iter().filter(|(_, pending)| pending.is_leaving());
        leaving.map(|(id, _)| *id).take(self.options.batch).collect()
    }

    /// Ends the operations that the applied slots have ended, and revalidates the others.
    pub(super) fn resolve(&mut self, out: &mut Out<'_, M::Wish>) {
        let ids: Vec<_> = self.pending.keys().copied().collect();
        for id in ids {
            match self.state.fate(&id) {
                Some(Ended::Applied(slot)) => self.end_as_decided(id, Outcome::Committed(slot), out),
                Some(Ended::Withdrawn(_)) => {
                    let leaving = self.pending.get(&id).and_then(|pending| pending.leaving.clone());
                    let lost = Outcome::NotCommitted(NotCommitted::Deadline);
                    self.end_as_decided(id, leaving.unwrap_or(lost), out);
                }
                None => self.revalidate(id, out),
            }
        }
    }

    fn revalidate(&mut self, id: OperationId, out: &mut Out<'_, M::Wish>) {
        let around = self.state.around();
        let Some(pending) = self.pending.get(&id) else { return };
        if self.state.applied() < pending.born {
            // An earlier process had applied more slots than it stored. The operation must be checked against that
            // later state.
            return;
        }
        let is_member = self.state.machine().may_propose(&self.signer.public());
        if !is_member {
            // Other devices cannot have it applied either.
            let reason = Invalid::because("you are not a member of this council");
            return self.end(id, Outcome::Invalid(reason), out);
        }
        if pending.is_leaving() {
            return;
        }
        if !self.state.remembers(pending.born) {
            self.bear_again(id, out);
        }
        let Some(pending) = self.pending.get(&id) else { return };
        match self.state.machine().revalidate(&pending.wish, &around) {
            Standing::Wanted => {}
            Standing::Satisfied => self.leave(id, Outcome::NotCommitted(NotCommitted::AlreadySo), out),
            Standing::Invalid(invalid) => self.leave(id, Outcome::Invalid(invalid), out),
        }
    }

    /// Submits an expired operation again under the same id. The operation can no longer be applied under its old
    /// birth slot, and it was not: this device has applied every slot since then. So it is still applied at most
    /// once.
    fn bear_again(&mut self, id: OperationId, out: &mut Out<'_, M::Wish>) {
        let Some(pending) = self.pending.get_mut(&id) else { return };
        pending.born = self.state.applied();
        pending.built = None;
        let (wish, letter, born) = (pending.wish.clone(), pending.letter.clone(), pending.born);
        out.store(Record::Submitted { id, wish, letter, born });
    }

    /// Ends the operations whose outcome is forgotten as unknown, after the device has skipped too many slots. No
    /// node can tell their outcome any more. The device still posts their mail: an added member needs its message,
    /// and no other node reads it.
    pub(super) fn lose_track(&mut self, out: &mut Out<'_, M::Wish>) {
        let is_lost = |id: &OperationId, pending: &Pending<_>| {
            pending.exposed && !self.state.remembers(pending.born) && self.state.fate(id).is_none()
        };
        let lost: Vec<_> =
            self.pending.iter().filter(|(id, pending)| is_lost(id, pending)).map(|(id, _)| *id).collect();
        for id in lost {
            self.counts.unknown += 1;
            self.end_as_decided(id, Outcome::Unknown, out);
        }
    }

    /// Withdraws an operation. If other nodes may know it, the withdrawal is final only when a slot decides it.
    pub(super) fn leave(&mut self, id: OperationId, outcome: Outcome, out: &mut Out<'_, M::Wish>) {
        let Some(pending) = self.pending.get_mut(&id) else { return };
        if !pending.exposed || pending.quiet {
            return self.end(id, outcome, out);
        }
        pending.leaving = Some(outcome);
    }

    pub(super) fn miss_deadlines(&mut self, out: &mut Out<'_, M::Wish>) {
        let is_late = |pending: &Pending<_>| pending.deadline_us.is_some_and(|at_us| at_us <= out.now_us);
        let late = self.pending.iter().filter(|(_, pending)| is_late(pending));
        let late: Vec<_> = late.map(|(id, _)| *id).collect();
        for id in late {
            let Some(pending) = self.pending.get_mut(&id) else { continue };
            pending.deadline_us = None;
            if pending.exposed && !planted!(TimeoutIsFailure) {
                self.counts.unknown += 1;
                out.end(id, Outcome::Unknown);
            }
            if planted!(TimeoutIsFailure) {
                self.end(id, Outcome::NotCommitted(NotCommitted::Deadline), out);
            } else if self.pending.get(&id).is_some_and(|pending| !pending.is_leaving()) {
                self.leave(id, Outcome::NotCommitted(NotCommitted::Deadline), out);
            }
        }
    }

    /// Ends an operation by a decision of this device alone. The decision must be on disk before the outcome is
    /// reported: otherwise the device would resume the operation after a crash.
    pub(super) fn end(&mut self, id: OperationId, outcome: Outcome, out: &mut Out<'_, M::Wish>) {
        let Some(pending) = self.pending.remove(&id) else { return };
        self.announced.forget(&id);
        out.store(Record::Ended { id });
        if !pending.quiet {
            out.end_when_stored(id, outcome);
        }
    }

    /// Ends an operation by the decision of a slot. If the device forgets this in a crash, it learns it again.
    pub(super) fn end_as_decided(&mut self, id: OperationId, outcome: Outcome, out: &mut Out<'_, M::Wish>) {
        let Some(pending) = self.pending.remove(&id) else { return };
        self.announced.forget(&id);
        if let (Outcome::Committed(_) | Outcome::Unknown, Some(letter)) = (&outcome, pending.letter) {
            out.store_later(Record::Letter { id, letter: letter.clone() });
            self.letters.keep(id, letter);
        }
        out.store_later(Record::Ended { id });
        if !pending.quiet {
            out.end(id, outcome);
        }
    }

    /// Returns whether the device may send these operations to other nodes now. The records that must be on disk
    /// before are already being stored.
    pub(super) fn may_be_told(&self, operations: &[Operation]) -> bool {
        let own = operations.iter().filter_map(|operation| self.pending.get(&operation.id));
        own.into_iter().all(Pending::may_be_told)
    }

    /// Injected defect: the mail of a proposed value is lost together with its attempt.
    pub(super) fn clear_letters(&mut self) {
        for pending in self.pending.values_mut() {
            pending.letter = None;
        }
    }
}

/// The maximum size of a value with several operations. A single operation may be larger.
pub(super) const BATCH_BYTES: usize = 128 * 1024;

/// Returns the approximate number of bytes that an operation adds to a value.
pub(super) fn weight(body: &Bytes) -> usize {
    body.len() + 128
}

//! What is wanted here, until it is known what became of it.

use bytes::Bytes;
use holdoff_paxos::Slot;

use super::{Device, Letter, NotCommitted, Out, Outcome, Record};
use crate::machine::{Invalid, Machine, Standing};
use crate::{Ended, Operation, OperationId, planted};

/// An operation that is under way.
#[derive(Clone, Debug)]
pub(super) struct Pending<W> {
    pub(super) wish: W,
    letter: Option<Letter>,
    born: Slot,
    /// Whether it is on disk.
    is_stored: bool,
    /// When whoever wants it stops waiting; `None` if nobody does any more.
    deadline_us: Option<u64>,
    /// Whether others may know of it: then it may be decided without us.
    exposed: bool,
    /// What to say once it is taken back, if it is being taken back.
    leaving: Option<Outcome>,
    /// What was built last, and for which slot.
    built: Option<(Slot, Operation)>,
    /// Whether the device wants it of its own accord: nobody waits for a word about it, and it does no harm if it
    /// happens late.
    quiet: bool,
}

impl<W> Pending<W> {
    /// Of an earlier life, in which it may have been told to anybody.
    pub(super) fn restored(wish: W, letter: Option<Letter>, born: Slot) -> Self {
        let (exposed, is_stored, quiet) = (true, true, false);
        let (deadline_us, leaving, built) = (None, None, None);
        Self { wish, letter, born, is_stored, deadline_us, exposed, leaving, built, quiet }
    }

    pub(super) fn is_on_disk(&mut self) {
        self.is_stored = true;
    }

    /// Whether others may hear of it. A letter must not be forgotten when others have the operation decided.
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
            // Somebody waits for it again.
            known.deadline_us = known.leaving.is_none().then_some(deadline_us);
            return;
        }
        if self.pending.len() >= self.options.pending {
            return out.end(id, Outcome::NotCommitted(NotCommitted::TooMany));
        }
        let born = self.state.applied();
        let submitted = Record::Submitted { id, wish: wish.clone(), letter: letter.clone(), born };
        // With a promise in hand it is decided as soon as it could be stored.
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

    /// Wants something of its own accord, unless as much is under way as may be.
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

    /// Whether anything is to be proposed.
    pub(super) fn has_wishes(&self) -> bool {
        !self.pending.is_empty()
    }

    /// What is wanted here, built for the next slot, in the order of the ids.
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

    /// What others may have decided for us; from now on they may.
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

    /// What is being taken back.
    pub(super) fn withdrawn(&self) -> Vec<OperationId> {
        let leaving = self.pending.iter().filter(|(_, pending)| pending.is_leaving());
        leaving.map(|(id, _)| *id).take(self.options.batch).collect()
    }

    /// Ends what the slots so far have ended, and asks the others whether they still make sense.
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
            // An earlier life knew more than was stored. What it wanted is to be seen in the light of that.
            return;
        }
        let is_member = self.state.machine().may_propose(&self.signer.public());
        if !is_member {
            // Nor can it be carried out for us by others.
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

    /// What was wanted so long ago cannot happen any more, and has not: every slot since then was carried out here. So
    /// it may be wanted anew under the same id, and happens at most once all the same.
    fn bear_again(&mut self, id: OperationId, out: &mut Out<'_, M::Wish>) {
        let Some(pending) = self.pending.get_mut(&id) else { return };
        pending.born = self.state.applied();
        pending.built = None;
        let (wish, letter, born) = (pending.wish.clone(), pending.letter.clone(), pending.born);
        out.store(Record::Submitted { id, wish, letter, born });
    }

    /// So many slots were passed over that what became of some operations is forgotten: nobody can say any more.
    /// Their letters are posted: who was added needs one, and nobody else reads it.
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

    /// Takes an operation back. What others may know of is only gone when a slot says so.
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

    /// An operation is given up here: if this were forgotten, it would be taken up again.
    pub(super) fn end(&mut self, id: OperationId, outcome: Outcome, out: &mut Out<'_, M::Wish>) {
        let Some(pending) = self.pending.remove(&id) else { return };
        self.announced.forget(&id);
        out.store(Record::Ended { id });
        if !pending.quiet {
            out.end_when_stored(id, outcome);
        }
    }

    /// What became of an operation is for everybody to see: if this is forgotten, it is seen again.
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

    /// Whether others may hear of all these now. What must be stored before is being stored.
    pub(super) fn may_be_told(&self, operations: &[Operation]) -> bool {
        let own = operations.iter().filter_map(|operation| self.pending.get(&operation.id));
        own.into_iter().all(Pending::may_be_told)
    }

    /// One of the known defects: what belongs to a value is gone when its attempt is.
    pub(super) fn clear_letters(&mut self) {
        for pending in self.pending.values_mut() {
            pending.letter = None;
        }
    }
}

/// The largest value that is put together; a single operation may be larger.
pub(super) const BATCH_BYTES: usize = 128 * 1024;

/// Roughly what an operation adds to a value.
pub(super) fn weight(body: &Bytes) -> usize {
    body.len() + 128
}

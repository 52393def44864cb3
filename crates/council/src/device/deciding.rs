//! The path to a decision: prepare → accept → resolve, or wait and make another attempt.

use std::convert::Infallible;
use std::time::Duration;

use holdoff_paxos::slot::{
    AcceptOutcome, AcceptReply, Accepting, Free, PrepareOutcome, Preparing, PromiseReply, Vote,
};
use holdoff_paxos::{Ballot, Configuration, NodeId, Slot};
use holdoff_policy::{Class, Decision, Failure, SoFar};

use super::pending::{BATCH_BYTES, weight};
use super::round::{Lookahead, Phase, RequestTiming};
use super::{Device, Out, Record};
use crate::council_acceptor::MAX_ATTEMPT_JUMP;
use crate::machine::{Effect, Machine};
use crate::{AcceptorRequest, AccessChange, Batch, RequestRefusal, SignedOperation, SlotValue};

/// The time at which a request may leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum When {
    Now,
    /// After all records so far are on disk.
    Stored,
}

impl When {
    fn request<W>(self, to: NodeId, request: AcceptorRequest, out: &mut Out<'_, W>) {
        match self {
            Self::Now => out.request(to, request),
            Self::Stored => out.request_when_stored(to, request),
        }
    }
}

impl<M: Machine> Device<M> {
    /// Starts the next phase, if one can start now.
    pub(super) fn advance(&mut self, out: &mut Out<'_, M::Change>) {
        if let Phase::Waiting { until_us } = self.round.phase
            && until_us <= out.now_us
        {
            self.round.phase = Phase::Resting;
            if !self.has_pending() && self.learning.is_behind(self.state.applied()) {
                // The device cannot learn the decision from the votes it receives. A proposal of its own reveals
                // it.
                return self.begin(out);
            }
        }
        if !self.has_pending() {
            return;
        }
        match std::mem::replace(&mut self.round.phase, Phase::Resting) {
            Phase::Resting => self.begin(out),
            Phase::Ready(free) => self.propose(free, out),
            other => self.round.phase = other,
        }
    }

    fn begin(&mut self, out: &mut Out<'_, M::Change>) {
        let Some(configuration) = self.state.configuration().filter(|_| !self.removal.is_closed()) else {
            return;
        };
        self.counts.ballots += 1;
        let (preparing, when) = self.prepare(self.round.slot, self.round.over, configuration, out);
        self.request_promises(&preparing, when, out);
        self.round.phase = Phase::Preparing(preparing, self.sent(out, 1));
    }

    /// Starts a new attempt at a slot, higher than every attempt that this device has used and every attempt that
    /// preempted it.
    fn prepare(
        &mut self,
        slot: Slot,
        over: u64,
        configuration: Configuration,
        out: &mut Out<'_, M::Change>,
    ) -> (Preparing<SlotValue>, When) {
        let attempt = self.used.highest(slot).max(over).saturating_add(1);
        let held = Preparing::begin(slot, attempt, self.me, configuration);
        let mut when = When::Now;
        let stored: Result<_, Infallible> = held.release(|attempt| {
            if !self.used.is_reserved(attempt) {
                out.store(Record::Attempt(attempt));
                when = When::Stored;
            }
            self.used.note(attempt);
            Ok(())
        });
        let Ok(preparing) = stored;
        (preparing, when)
    }

    /// Stores a reserve of ballots in advance, so that a proposal need not wait for the disk.
    pub(super) fn reserve(&mut self, out: &mut Out<'_, M::Change>) {
        if let Some(reserve) = self.used.reserve(self.state.applied()) {
            out.store(Record::Reserved(reserve));
        }
    }

    fn sent(&self, out: &mut Out<'_, M::Change>, times: u32) -> RequestTiming {
        // The device cannot measure an acceptor that has become slow if it repeats the next request as early as the
        // last one.
        let again_us = self.retransmit_at(self.round_trip.missed().saturating_add(1), out);
        RequestTiming { at_us: out.now_us, again_us, times }
    }

    fn request_promises(
        &mut self,
        preparing: &Preparing<SlotValue>,
        when: When,
        out: &mut Out<'_, M::Change>,
    ) {
        let (slot, ballot) = (self.round.slot, preparing.ballot());
        let announce = self.announce();
        let when = if self.may_be_sent(&announce) { when } else { When::Stored };
        for to in preparing.unanswered() {
            when.request(to, AcceptorRequest::Prepare { slot, ballot, announce: announce.clone() }, out);
        }
    }

    fn request_votes(
        &self,
        accepting: &Accepting<SlotValue>,
        ahead: &Lookahead,
        when: When,
        out: &mut Out<'_, M::Change>,
    ) {
        let (slot, ballot) = (self.round.slot, accepting.ballot());
        let next = match ahead {
            Lookahead::Requested(preparing) => Some(preparing.ballot()),
            _ => None,
        };
        for to in accepting.unanswered() {
            when.request(
                to,
                AcceptorRequest::Accept { slot, ballot, value: accepting.value().clone(), next },
                out,
            );
        }
    }

    /// Repeats the request to the acceptors that have not answered.
    pub(super) fn retransmit(&mut self, out: &mut Out<'_, M::Change>) {
        if self.round.is_waiting() || self.round.wakes_at_us().is_none_or(|at_us| at_us > out.now_us) {
            return;
        }
        self.counts.retransmissions += 1;
        self.round_trip.note_timeout();
        match std::mem::replace(&mut self.round.phase, Phase::Resting) {
            Phase::Preparing(preparing, sent) => {
                if let Some(by) = preparing.preempting_ballot() {
                    // Some acceptors refuse and the others are silent. Without this the attempt might never end.
                    self.counts.preempted_preparing += 1;
                    return self.wait(by, out);
                }
                self.request_promises(&preparing, When::Stored, out);
                self.round.phase = Phase::Preparing(preparing, self.sent(out, sent.times + 1));
            }
            Phase::Accepting(accepting, sent, ahead) => {
                if let Some(by) = accepting.preempting_ballot() {
                    self.counts.preempted_accepting += 1;
                    return self.wait(by, out);
                }
                if self.round.is_full && !accepting.value().compacts {
                    // The next attempt may propose a compaction.
                    return self.wait_after_preemption(out);
                }
                self.request_votes(&accepting, &ahead, When::Stored, out);
                self.round.phase = Phase::Accepting(accepting, self.sent(out, sent.times + 1), ahead);
            }
            other => self.round.phase = other,
        }
    }

    /// Processes an acceptor's answer to a prepare request.
    pub(super) fn promised(
        &mut self,
        from: NodeId,
        slot: Slot,
        reply: PromiseReply<SlotValue>,
        out: &mut Out<'_, M::Change>,
    ) {
        if slot != self.round.slot {
            return;
        }
        if let PromiseReply::Promise { accepted: Some(vote), .. } = &reply {
            if !self.is_genuine(slot, &vote.value) {
                return;
            }
            // A reported vote counts like any other vote.
            self.votes(from, [(slot, vote.clone())], out);
            if slot != self.round.slot {
                return;
            }
        }
        match std::mem::replace(&mut self.round.phase, Phase::Resting) {
            Phase::Preparing(preparing, sent) => {
                self.measure(sent, out);
                match preparing.answer(from, reply) {
                    PrepareOutcome::Waiting(preparing) => {
                        self.round.phase = Phase::Preparing(preparing, sent);
                    }
                    PrepareOutcome::Free(free) => self.propose(free, out),
                    PrepareOutcome::Bound(accepting) => {
                        self.start_accepting(accepting, Lookahead::No, When::Now, out);
                    }
                    PrepareOutcome::Preempted(by) => {
                        self.counts.preempted_preparing += 1;
                        self.wait(by, out);
                    }
                }
            }
            other => self.round.phase = other,
        }
    }

    /// Proposes the pending operations of this device and the announced ones of others. If there are none, keeps
    /// the promise for later.
    fn propose(&mut self, free: Free, out: &mut Out<'_, M::Change>) {
        let (operations, access, compacts) = self.gather();
        let withdrawn = self.withdrawn();
        if operations.is_empty() && withdrawn.is_empty() {
            self.round.phase = Phase::Ready(free);
            return;
        }
        for operation in &operations {
            self.expose(&operation.id);
        }
        let (ahead, when) = self.look_ahead(&operations, out);
        let when = if self.may_be_sent(&operations) { when } else { When::Stored };
        let nonce = u64::from((out.roll)()) << 32 | u64::from((out.roll)());
        let batch = Batch { previous: self.state.chain(), operations, withdrawn, nonce };
        match SlotValue::sign(self.state.council(), self.round.slot, &batch, access, compacts, &*self.signer)
        {
            Ok(value) => self.start_accepting(free.propose(value), ahead, when, out),
            Err(_) => self.round.phase = Phase::Ready(free),
        }
    }

    /// Collects the operations for a value: the device's own first, then the announced ones. Takes only operations
    /// that can be applied one after the other. Returns also the change of the members that they make, and whether they
    /// compact the history. A full council decides the compaction first.
    fn gather(&mut self) -> (Vec<SignedOperation>, Option<AccessChange>, bool) {
        let compaction = self.upkeep.urgent_compaction().filter(|id| self.pending.contains_key(id));
        let own = self.build_own().into_iter().filter(|own| compaction.is_none_or(|id| own.id == id));
        let own = own.take(if self.options.shares { self.options.batch } else { 1 });
        let others = self.announced.iter().filter(|other| !self.pending.contains_key(&other.id));
        let others = others.filter(|_| self.options.shares && compaction.is_none()).cloned();
        let (mut trial, mut bytes, mut compacts) = (self.state.machine().clone(), 0, false);
        let mut gathered = Vec::new();
        for operation in own.chain(others) {
            bytes += weight(&operation.body);
            if gathered.len() >= self.options.batch || (bytes > BATCH_BYTES && !gathered.is_empty()) {
                break;
            }
            if let Ok(effect) = self.state.check(&mut trial, &operation, &*self.verifier) {
                compacts |= effect == Effect::Compact;
                gathered.push(operation);
            }
        }
        let access = self.state.access_change(&trial);
        (gathered, access, compacts)
    }

    /// Requests the promise of the next slot together with the votes for this slot, if this device is the only
    /// writer. The next decision then needs one round trip instead of two. With other writers the device does not
    /// do this, because its promise would delay them.
    fn look_ahead(
        &mut self,
        operations: &[SignedOperation],
        out: &mut Out<'_, M::Change>,
    ) -> (Lookahead, When) {
        let me = self.signer.public();
        let is_alone = self.learning.was_mine() && self.round.preempted == 0 && self.announced.is_empty();
        if !is_alone || operations.iter().any(|operation| operation.author != me) {
            return (Lookahead::No, When::Now);
        }
        let Some(configuration) = self.state.configuration() else { return (Lookahead::No, When::Now) };
        let (preparing, when) = self.prepare(self.round.slot.next(), 0, configuration, out);
        (Lookahead::Requested(preparing), when)
    }

    fn start_accepting(
        &mut self,
        accepting: Accepting<SlotValue>,
        ahead: Lookahead,
        when: When,
        out: &mut Out<'_, M::Change>,
    ) {
        self.request_votes(&accepting, &ahead, when, out);
        self.round.phase = Phase::Accepting(accepting, self.sent(out, 1), ahead);
    }

    /// Processes an acceptor's answer to an accept request.
    pub(super) fn accepted(
        &mut self,
        from: NodeId,
        slot: Slot,
        reply: AcceptReply,
        next: Option<PromiseReply<SlotValue>>,
        out: &mut Out<'_, M::Change>,
    ) {
        if slot != self.round.slot {
            // The promise for this slot may arrive after the decision of the previous slot.
            if let Some(next) = next.filter(|_| slot.next() == self.round.slot) {
                self.promised(from, slot.next(), next, out);
            }
            return;
        }
        let phase = std::mem::replace(&mut self.round.phase, Phase::Resting);
        let Phase::Accepting(accepting, sent, ahead) = phase else {
            self.round.phase = phase;
            return;
        };
        self.measure(sent, out);
        let ahead = self.promised_ahead(from, ahead, next);
        let silent: Vec<_> = accepting.unanswered().filter(|silent| *silent != from).collect();
        match accepting.answer(from, reply) {
            AcceptOutcome::Waiting(accepting) => self.round.phase = Phase::Accepting(accepting, sent, ahead),
            AcceptOutcome::Chosen(vote) => self.chosen(vote, &silent, sent, ahead, out),
            AcceptOutcome::Preempted(by) => {
                self.counts.preempted_accepting += 1;
                self.wait(by, out);
            }
        }
    }

    fn promised_ahead(
        &mut self,
        from: NodeId,
        ahead: Lookahead,
        next: Option<PromiseReply<SlotValue>>,
    ) -> Lookahead {
        let (Lookahead::Requested(preparing), Some(reply)) = (&ahead, next) else { return ahead };
        if let PromiseReply::Promise { accepted: Some(vote), .. } = &reply
            && !self.is_genuine(self.round.slot.next(), &vote.value)
        {
            return ahead;
        }
        match preparing.clone().answer(from, reply) {
            PrepareOutcome::Waiting(preparing) => Lookahead::Requested(preparing),
            PrepareOutcome::Free(free) => Lookahead::Ready(free),
            PrepareOutcome::Bound(_) | PrepareOutcome::Preempted(_) => Lookahead::No,
        }
    }

    /// Applies the value of this device's ballot, which is now decided. Sends the decision to the acceptors that
    /// have not voted yet, so that other devices can learn it from them.
    fn chosen(
        &mut self,
        vote: Vote<SlotValue>,
        silent: &[NodeId],
        sent: RequestTiming,
        ahead: Lookahead,
        out: &mut Out<'_, M::Change>,
    ) {
        let slot = self.round.slot;
        let before = self.state.configuration();
        for to in silent {
            out.request(*to, AcceptorRequest::Decided { slot, vote: vote.clone() });
        }
        let access = self.state.access();
        let acceptors: Vec<_> = self.state.machine().acceptors().keys().copied().collect();
        self.learned(vote.value, out);
        // The acceptors that have voted do not know yet that the value is decided.
        for to in acceptors {
            self.report_access(to, access, out);
        }
        // The promise holds only if the same acceptors decide the next slot.
        if self.round.slot == slot.next() && self.round.is_resting() && self.state.configuration() == before {
            match ahead {
                Lookahead::No => {}
                Lookahead::Requested(preparing) => self.round.phase = Phase::Preparing(preparing, sent),
                Lookahead::Ready(free) => self.round.phase = Phase::Ready(free),
            }
        }
        // The values accepted in later slots may be just as hard to learn from votes, so the device continues at
        // once.
        if self.round.is_resting() && !self.has_pending() && self.learning.is_behind(self.state.applied()) {
            self.begin(out);
        }
    }

    /// Waits after a higher ballot has preempted this attempt. The next attempt uses a higher ballot, but not
    /// before the other proposer can have finished.
    fn wait(&mut self, by: Ballot, out: &mut Out<'_, M::Change>) {
        self.round.over = self.round.over.max(by.attempt());
        self.wait_after_preemption(out);
    }

    pub(super) fn wait_after_preemption(&mut self, out: &mut Out<'_, M::Change>) {
        self.round.preempted = self.round.preempted.saturating_add(1);
        let floor = Duration::from_micros(self.round_trip.estimate_us() * 2);
        let failure = Failure::new(Class::Superseded).with_retry_after(floor);
        let so_far = SoFar::after(self.round.preempted);
        let after = match self.options.policy.decide(&so_far, &failure, (out.roll)()) {
            Decision::Retry { after } => after.max(floor),
            // A decision to give up does not apply here: the deadline of the operation ends it.
            _ => floor,
        };
        let after_us = holdoff_policy::as_micros_u64(after);
        self.counts.waits += 1;
        self.counts.waited_us += after_us;
        self.round.phase = Phase::Waiting { until_us: out.now_us.saturating_add(after_us) };
    }

    /// Processes a refusal: the acceptor does not take part in this attempt. The others may still be a majority.
    pub(super) fn refused(
        &mut self,
        from: NodeId,
        slot: Option<Slot>,
        why: RequestRefusal,
        out: &mut Out<'_, M::Change>,
    ) {
        self.counts.refused += 1;
        match why {
            // A refusal without a slot concerns a mail message for which there was no room.
            RequestRefusal::Full if slot == Some(self.round.slot) => self.is_full_at(from),
            RequestRefusal::UnknownCouncil => self.introduce(from, out),
            RequestRefusal::NotMember { access, removed_in } => {
                self.not_a_member(from, access, removed_in, out);
            }
            RequestRefusal::AttemptTooHigh { highest } if slot == Some(self.round.slot) => {
                self.raise_attempt(from, highest, out);
            }
            _ => {}
        }
    }

    /// Raises the highest attempt of an acceptor that has missed so many attempts that it refuses the current one. The
    /// ballot is used for no value, so it may be lower than those that this device has used. The repeated request then
    /// succeeds, or needs another step.
    fn raise_attempt(&self, at: NodeId, highest: u64, out: &mut Out<'_, M::Change>) {
        let (slot, attempt) = (self.round.slot, highest.saturating_add(MAX_ATTEMPT_JUMP));
        if self.used.highest(slot) > attempt {
            let ballot = Ballot::new(slot, attempt, self.me);
            out.request(at, AcceptorRequest::Prepare { slot, ballot, announce: Vec::new() });
        }
    }

    fn measure(&mut self, sent: RequestTiming, out: &Out<'_, M::Change>) {
        if sent.times == 1 {
            self.round_trip.add_sample(out.now_us.saturating_sub(sent.at_us));
        }
    }

    /// Returns whether a value is signed for this slot. An acceptor that reports any other value is faulty,
    /// or has received a forged value.
    pub(super) fn is_genuine(&mut self, slot: Slot, value: &SlotValue) -> bool {
        let is_genuine = value.is_signed(self.state.council(), slot, &*self.verifier);
        self.counts.forged += u64::from(!is_genuine);
        is_genuine
    }

    /// Stores announced operations of other members.
    pub(super) fn add_announced(&mut self, announced: Vec<SignedOperation>) {
        for operation in announced {
            if operation.author != self.signer.public() {
                self.announced.add(operation, &self.state);
            }
        }
    }
}

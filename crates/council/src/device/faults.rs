//! Fault injection: known defects of the source document's algorithm, which the simulation must find.
//!
//! The wrapper alters the inputs and outputs of a device; `council_acceptor/tests.rs` does the same for an acceptor. The
//! production code knows nothing of the defects.

use holdoff_driver::{Core, Roll};
use holdoff_paxos::NodeId;
use holdoff_paxos::slot::{AcceptOutcome, AcceptReply, PromiseReply};
use holdoff_testbed::fault::is_injected;

use super::round::Phase;
use super::{Device, DeviceStep, Input, NotCommitted, Out, Outcome, Output, Record};
use crate::machine::Machine;
use crate::{AcceptorReply, OperationId, SlotValue};

/// A defect of a device or of an acceptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CouncilFault {
    /// The device drops the data of a proposed value when its attempt is preempted, although the value may still be
    /// decided.
    ClearWhatWasProposed,
    /// The device takes a value for its own because the value was chosen under its ballot.
    MineByBallot,
    /// The device ignores all messages while it waits.
    SleepInTheActor,
    /// The device ends an operation that lost a slot instead of rebuilding it.
    LosingIsFailing,
    /// A restarted device does not know which ballots it has used.
    ForgetAttempts,
    /// The device reports an operation as not committed after a timeout, although it may have been committed.
    TimeoutIsFailure,
    /// The device counts messages instead of acceptors.
    CountMessages,
    /// A device that has learned of an accepted value proposes its own value regardless.
    IgnoreAccepted,
    /// Two connections race on one promise of an acceptor: the last write wins, even if its ballot is lower.
    RacingPromise,
    /// An acceptor replaces the history by any snapshot that it is offered.
    BelieveAnySnapshot,
    /// An acceptor forgets that a member was removed.
    ForgetRemoval,
    /// An acceptor promises a ballot with any attempt.
    TakeAnyAttempt,
}

impl<M: Machine> Device<M> {
    /// Restores a record, unless the injected defect loses it.
    pub(crate) fn restore_with_faults(&mut self, record: Record<M::Change>) {
        let is_attempt = matches!(record, Record::Attempt(_) | Record::Reserved(_));
        if !(is_attempt && is_injected(CouncilFault::ForgetAttempts)) {
            self.restore(record);
        }
    }

    /// Processes an event with the injected defect, if there is one.
    pub(crate) fn step_with_faults(
        &mut self,
        now_us: u64,
        roll: Roll<'_>,
        input: Input<M::Change>,
    ) -> DeviceStep<M::Change> {
        let input = self.altered(input);
        let mut before = self.take_chosen_for_own(now_us, &input);
        let counts = self.counts;
        let is_vote = matches!(input, Input::Reply { reply: AcceptorReply::Accepted { .. }, .. });
        let mut step = self.step(now_us, roll, input);
        if is_injected(CouncilFault::ClearWhatWasProposed)
            && is_vote
            && self.counts.preempted_accepting > counts.preempted_accepting
        {
            self.pending.values_mut().for_each(|pending| pending.mail = None);
        }
        let mut failed = Vec::new();
        let loses = is_injected(CouncilFault::LosingIsFailing) && self.counts.lost_slots > counts.lost_slots;
        if loses {
            failed.extend(self.pending());
        }
        for mut output in step.take_at_once() {
            match &mut output {
                Output::Ended { outcome: outcome @ Outcome::Committed(_), .. } if loses => {
                    *outcome = Outcome::NotCommitted(NotCommitted::Deadline);
                }
                Output::Ended { id, outcome: Outcome::Unknown }
                    if is_injected(CouncilFault::TimeoutIsFailure) && self.pending.contains_key(id) =>
                {
                    failed.push(*id);
                    continue;
                }
                _ => {}
            }
            step.at_once(output);
        }
        before.append(step);
        before.append(self.fail(now_us, failed));
        before
    }

    fn altered(&self, input: Input<M::Change>) -> Input<M::Change> {
        let Input::Reply { mut from, mut reply } = input else { return input };
        if is_injected(CouncilFault::SleepInTheActor) && self.round.is_waiting() {
            return Input::Tick;
        }
        if is_injected(CouncilFault::IgnoreAccepted) {
            ignore_accepted(&mut reply);
        }
        if is_injected(CouncilFault::CountMessages) {
            from = self.counted_as(from, &reply);
        }
        Input::Reply { from, reply }
    }

    /// Returns the acceptor for which a grant counts: a repeated grant counts for an acceptor that has not answered.
    fn counted_as(&self, from: NodeId, reply: &AcceptorReply) -> NodeId {
        let unanswered: Vec<_> = match (&self.round.phase, reply) {
            (
                Phase::Preparing(preparing, _),
                AcceptorReply::Promise { reply: PromiseReply::Promise { ballot, .. }, .. },
            ) if *ballot == preparing.ballot() => preparing.unanswered().collect(),
            (
                Phase::Accepting(accepting, ..),
                AcceptorReply::Accepted { reply: AcceptReply::Accepted { ballot }, .. },
            ) if *ballot == accepting.ballot() => accepting.unanswered().collect(),
            _ => return from,
        };
        if unanswered.contains(&from) { from } else { unanswered.first().copied().unwrap_or(from) }
    }

    /// Ends all pending operations as committed if this input chooses the value of this device's ballot, whose author
    /// may be another device.
    fn take_chosen_for_own(&mut self, now_us: u64, input: &Input<M::Change>) -> DeviceStep<M::Change> {
        let mut no_roll = || 0_u32;
        let mut out = Out::new(now_us, &mut no_roll);
        if is_injected(CouncilFault::MineByBallot) && self.is_chosen_by(input) {
            let (slot, ids) = (self.round.slot, self.pending().collect::<Vec<_>>());
            for id in ids {
                self.end_as_decided(id, Outcome::Committed(slot), &mut out);
            }
        }
        out.step
    }

    fn is_chosen_by(&self, input: &Input<M::Change>) -> bool {
        let Input::Reply { from, reply: AcceptorReply::Accepted { slot, reply, .. } } = input else {
            return false;
        };
        let Phase::Accepting(accepting, ..) = &self.round.phase else { return false };
        *slot == self.round.slot
            && matches!(accepting.clone().answer(*from, *reply), AcceptOutcome::Chosen(_))
    }

    fn fail(&mut self, now_us: u64, ids: Vec<OperationId>) -> DeviceStep<M::Change> {
        let mut no_roll = || 0_u32;
        let mut out = Out::new(now_us, &mut no_roll);
        for id in ids {
            self.end(id, Outcome::NotCommitted(NotCommitted::Deadline), &mut out);
        }
        out.step
    }
}

/// Removes the accepted value from a promise.
fn ignore_accepted(reply: &mut AcceptorReply) {
    let promise: Option<&mut PromiseReply<SlotValue>> = match reply {
        AcceptorReply::Promise { reply, .. } => Some(reply),
        AcceptorReply::Accepted { next, .. } => next.as_mut(),
        _ => None,
    };
    if let Some(PromiseReply::Promise { accepted, .. }) = promise {
        *accepted = None;
    }
}

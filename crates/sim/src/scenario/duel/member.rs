//! One member: proposes until its operation is decided, and learns decisions.

use holdoff_paxos::slot::{
    AcceptOutcome, AcceptReply, Accepting, Learner, PrepareOutcome, Preparing, PromiseReply,
};
use holdoff_paxos::{Ballot, Configuration, NodeId, Slot};
use holdoff_policy::{Class, Failure, GiveUpReason};

use super::duel_run::SafetyChecker;
use super::network::{AcceptorMessage, AcceptorRequest, Operation, stored};
use super::{LostSlot, Outcome, Params};
use crate::kernel::SimRng;
use crate::scenario::so_far;
use crate::strategy::{ProposerRule, Strategy, StrategyDecision};

/// The rules that are the same for all members.
pub(super) struct Rules<'a> {
    pub(super) params: &'a Params,
    pub(super) strategy: Strategy,
    pub(super) configuration: Configuration,
    pub(super) first_slot: u64,
}

impl Rules<'_> {
    pub(super) fn slot(&self, slot: usize) -> Slot {
        Slot(self.first_slot.saturating_add(slot as u64))
    }
}

/// The environment of a member during its turn, and the buffer for its effects.
pub(super) struct MemberContext<'a> {
    pub(super) now_us: u64,
    pub(super) rules: &'a Rules<'a>,
    pub(super) effects: &'a mut Vec<Effect>,
    pub(super) outcome: &'a mut Outcome,
    pub(super) checker: &'a mut SafetyChecker,
}

/// An effect that a member requests.
pub(super) enum Effect {
    Send { acceptor: NodeId, slot: usize, request: AcceptorRequest },
    SetTimer { after_us: u64, turn: u32 },
}

pub(super) struct Member {
    number: u32,
    rng: SimRng,
    learned: LearnedSlots,
    /// The slot that the member proposes for.
    slot: usize,
    /// The highest attempt in this slot that the member has made or met.
    highest: u64,
    phase: Phase,
    /// Counts phases, so that a timer of an earlier phase is recognised.
    turn: u32,
    attempts: u32,
    ballots: u64,
    last_delay_us: u64,
    started_us: u64,
    round_trip: RoundTrip,
    end: Option<MemberEnd>,
}

enum Phase {
    Resting,
    Preparing(Preparing<Operation>),
    Accepting(Accepting<Operation>),
}

/// The final state of a member.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MemberEnd {
    Done,
    GaveUp,
    TimedOut,
    Killed,
}

impl Member {
    pub(super) fn new(number: u32, seed: u64) -> Self {
        Self {
            number,
            rng: SimRng::of(seed, u64::from(number)),
            learned: LearnedSlots::default(),
            slot: 0,
            highest: 0,
            phase: Phase::Resting,
            turn: 0,
            attempts: 0,
            ballots: 0,
            last_delay_us: 0,
            started_us: 0,
            round_trip: RoundTrip::default(),
            end: None,
        }
    }

    /// Returns the id of a member, as the acceptors see it.
    pub(super) fn id(number: u32) -> NodeId {
        NodeId(u128::from(number) + 1)
    }

    /// Draws the start time of the member.
    pub(super) fn draw_start_us(&mut self, params: &Params) -> u64 {
        self.started_us = self.rng.between(0, params.arrive_within.0);
        self.started_us
    }

    pub(super) fn ballots(&self) -> u64 {
        self.ballots
    }

    pub(super) fn end(&self) -> Option<MemberEnd> {
        self.end
    }

    /// Begins a ballot: for the first slot that is not decided yet, unless the member never rebuilds.
    pub(super) fn begin(&mut self, context: &mut MemberContext<'_>) {
        let rules = context.rules;
        let open = self.learned.first_open();
        if rules.strategy.proposer_rule() != ProposerRule::Stale && self.slot != open {
            (self.slot, self.highest) = (open, 0);
        }
        self.highest += 1;
        self.attempts = self.attempts.saturating_add(1);
        self.ballots += 1;
        context.outcome.ballots += 1;
        let (slot, id) = (rules.slot(self.slot), Self::id(self.number));
        let preparing = stored(Preparing::begin(slot, self.highest, id, rules.configuration.clone()));
        self.enter(Phase::Preparing(preparing), context);
    }

    /// Handles the message of an acceptor about a slot.
    pub(super) fn hear(
        &mut self,
        from: NodeId,
        slot: usize,
        message: AcceptorMessage,
        context: &mut MemberContext<'_>,
    ) {
        match message {
            AcceptorMessage::Promise(reply) => self.promised(from, reply, context),
            AcceptorMessage::Refused { ballot, promised } => {
                self.voted(from, AcceptReply::Nack { ballot, promised }, context);
            }
            AcceptorMessage::Accepted(ballot, operation) => {
                let configuration = &context.rules.configuration;
                let chosen = self.learned.vote(slot, from, ballot, operation, configuration);
                if let Some(operation) = chosen {
                    self.learn(slot, operation, context);
                }
                self.voted(from, AcceptReply::Accepted { ballot }, context);
            }
        }
    }

    /// Handles a timer: the wait has ended, or a majority has not answered in time.
    pub(super) fn wake(&mut self, turn: u32, context: &mut MemberContext<'_>) {
        if turn != self.turn || self.end.is_some() {
            return;
        }
        if matches!(self.phase, Phase::Resting) {
            return self.begin(context);
        }
        context.outcome.unanswered += 1;
        if context.rules.strategy.proposer_rule() == ProposerRule::Council {
            self.round_trip.sent_again();
            self.send_to_silent(context);
        } else {
            self.fail(Class::Timeout, context);
        }
    }

    /// Ends the member's attempts. The member still learns: its operation may be decided later.
    pub(super) fn finish(&mut self, end: MemberEnd, context: &mut MemberContext<'_>) {
        match (end, self.end) {
            (_, Some(MemberEnd::Done | MemberEnd::Killed)) => return,
            (MemberEnd::Done, Some(_)) => context.outcome.done_after_all += 1,
            (_, Some(_)) => return,
            (_, None) => {}
        }
        self.phase = Phase::Resting;
        self.end = Some(end);
        if end != MemberEnd::Killed {
            context.outcome.time_us = context.now_us;
        }
    }

    fn promised(&mut self, from: NodeId, reply: PromiseReply<Operation>, context: &mut MemberContext<'_>) {
        let phase = std::mem::replace(&mut self.phase, Phase::Resting);
        let Phase::Preparing(preparing) = phase else {
            self.phase = phase;
            return;
        };
        let (PromiseReply::Promise { ballot, .. } | PromiseReply::Nack { ballot, .. }) = reply;
        if ballot == preparing.ballot() {
            self.round_trip.answered(context.now_us);
        }
        match preparing.answer(from, reply) {
            PrepareOutcome::Waiting(still) => self.phase = Phase::Preparing(still),
            PrepareOutcome::Free(free) => self.enter(Phase::Accepting(free.propose(self.number)), context),
            PrepareOutcome::Bound(accepting) => self.enter(Phase::Accepting(accepting), context),
            PrepareOutcome::Preempted(by) => self.preempted(by, context),
        }
    }

    fn voted(&mut self, from: NodeId, reply: AcceptReply, context: &mut MemberContext<'_>) {
        let phase = std::mem::replace(&mut self.phase, Phase::Resting);
        let Phase::Accepting(accepting) = phase else {
            self.phase = phase;
            return;
        };
        let (AcceptReply::Accepted { ballot } | AcceptReply::Nack { ballot, .. }) = reply;
        if ballot == accepting.ballot() {
            self.round_trip.answered(context.now_us);
        }
        match accepting.answer(from, reply) {
            AcceptOutcome::Waiting(still) => self.phase = Phase::Accepting(still),
            AcceptOutcome::Preempted(by) => self.preempted(by, context),
            AcceptOutcome::Chosen(vote) if self.learned.decide(self.slot, &context.rules.configuration) => {
                self.learn(self.slot, vote.value, context);
            }
            // A member that does not rebuild has had the decided value decided once more.
            AcceptOutcome::Chosen(_) => self.fail(Class::Superseded, context),
        }
    }

    /// Learns that a slot is decided.
    fn learn(&mut self, slot: usize, operation: Operation, context: &mut MemberContext<'_>) {
        context.checker.learned(slot, operation);
        if operation == self.number {
            return self.finish(MemberEnd::Done, context);
        }
        if self.end.is_some() || slot != self.slot || self.highest == 0 {
            return;
        }
        context.outcome.lost_slots += 1;
        let lost = match context.rules.strategy.proposer_rule() {
            ProposerRule::Stale => LostSlot::Failed,
            ProposerRule::Rebuild => context.rules.params.lost_slot,
            ProposerRule::Council => LostSlot::Restart,
        };
        let is_proposing = !matches!(self.phase, Phase::Resting);
        match lost {
            LostSlot::Restart => {
                (self.attempts, self.last_delay_us) = (0, 0);
                self.begin(context);
            }
            LostSlot::Continue => self.begin(context),
            LostSlot::Failed if is_proposing => self.fail(Class::Superseded, context),
            LostSlot::Failed => {}
        }
    }

    fn preempted(&mut self, by: Ballot, context: &mut MemberContext<'_>) {
        context.outcome.preempted += 1;
        self.highest = self.highest.max(by.attempt());
        self.fail(Class::Superseded, context);
    }

    /// Handles a failed attempt: the member waits, or gives up.
    fn fail(&mut self, class: Class, context: &mut MemberContext<'_>) {
        let params = context.rules.params;
        self.phase = Phase::Resting;
        self.turn += 1;
        let mut so_far = so_far(self.attempts, context.now_us - self.started_us, self.last_delay_us);
        so_far.deadline = Some(params.deadline.duration());
        let is_last = params.attempts > 0 && self.attempts >= params.attempts;
        let (round_trip_us, roll) = (self.round_trip.mean_us(), self.rng.roll());
        let next = context.rules.strategy.next_after(round_trip_us, &so_far, &Failure::new(class), roll);
        match next {
            StrategyDecision::Wait(delay_us) if !is_last => {
                self.last_delay_us = delay_us;
                context.outcome.delays.count(delay_us);
                context.effects.push(Effect::SetTimer { after_us: delay_us, turn: self.turn });
            }
            StrategyDecision::GiveUp(GiveUpReason::Deadline) => self.finish(MemberEnd::TimedOut, context),
            StrategyDecision::Wait(_) | StrategyDecision::GiveUp(_) => {
                self.finish(MemberEnd::GaveUp, context);
            }
        }
    }

    /// Enters a phase in which the member asks all acceptors.
    fn enter(&mut self, phase: Phase, context: &mut MemberContext<'_>) {
        self.phase = phase;
        self.round_trip.sent(context.now_us);
        self.send_to_silent(context);
    }

    /// Asks the acceptors that have not agreed yet, and sets a timer for the answers.
    fn send_to_silent(&mut self, context: &mut MemberContext<'_>) {
        let (silent, request): (Vec<NodeId>, _) = match &self.phase {
            Phase::Resting => return,
            Phase::Preparing(preparing) => {
                (preparing.unanswered().collect(), AcceptorRequest::Prepare(preparing.ballot()))
            }
            Phase::Accepting(accepting) => (
                accepting.unanswered().collect(),
                AcceptorRequest::Accept(accepting.ballot(), *accepting.value()),
            ),
        };
        let slot = self.slot;
        context.effects.extend(silent.into_iter().map(|acceptor| Effect::Send { acceptor, slot, request }));
        self.turn += 1;
        let after_us = context.rules.params.answer_timeout.0;
        context.effects.push(Effect::SetTimer { after_us, turn: self.turn });
    }
}

/// The knowledge of a member about each slot.
#[derive(Default)]
struct LearnedSlots {
    slots: Vec<SlotState>,
    first_open: usize,
}

enum SlotState {
    Decided,
    Open(Learner<Operation>),
}

impl LearnedSlots {
    /// Returns the first slot that the member does not know to be decided.
    fn first_open(&self) -> usize {
        self.first_open
    }

    /// Counts the vote of an acceptor. Returns the decided operation if this vote is the first to show it.
    fn vote(
        &mut self,
        slot: usize,
        from: NodeId,
        ballot: Ballot,
        operation: Operation,
        configuration: &Configuration,
    ) -> Option<Operation> {
        let SlotState::Open(learner) = self.known(slot, configuration)? else { return None };
        let chosen = learner.accepted(from, ballot, operation)?;
        self.decide(slot, configuration).then_some(chosen.value)
    }

    /// Marks a slot as decided. Returns whether it was unknown before.
    fn decide(&mut self, slot: usize, configuration: &Configuration) -> bool {
        let Some(known @ SlotState::Open(_)) = self.known(slot, configuration) else { return false };
        *known = SlotState::Decided;
        while matches!(self.slots.get(self.first_open), Some(SlotState::Decided)) {
            self.first_open += 1;
        }
        true
    }

    fn known(&mut self, slot: usize, configuration: &Configuration) -> Option<&mut SlotState> {
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, || SlotState::Open(Learner::new(configuration.clone())));
        }
        self.slots.get_mut(slot)
    }
}

/// The measured time from a request to its answers.
#[derive(Default)]
struct RoundTrip {
    mean_us: Option<u64>,
    /// The time of the request. `None` after a second request, because an answer may belong to either.
    sent_us: Option<u64>,
}

impl RoundTrip {
    fn sent(&mut self, now_us: u64) {
        self.sent_us = Some(now_us);
    }

    fn sent_again(&mut self) {
        self.sent_us = None;
    }

    /// Records an answer. The mean moves an eighth of the way, so the latest answers count most.
    fn answered(&mut self, now_us: u64) {
        let Some(sent_us) = self.sent_us else { return };
        let seen_us = now_us - sent_us;
        self.mean_us = Some(self.mean_us.map_or(seen_us, |mean_us| (mean_us * 7 + seen_us) / 8));
    }

    /// Returns the mean, or `None` before the first answer that belongs to exactly one request.
    fn mean_us(&self) -> Option<u64> {
        self.mean_us
    }
}

#[cfg(test)]
mod tests;

//! One member: proposes until its operation is decided, and learns decisions.

mod knowledge;

use holdoff_paxos::slot::{AcceptReply, Accepting, Prepared, Preparing, PromiseReply, Voted};
use holdoff_paxos::{Ballot, Configuration, NodeId, Slot};
use holdoff_policy::{Class, Failure, Refusal};

use self::knowledge::{Knowledge, RoundTrip};
use super::panel::stored;
use super::wire::{Ask, Operation, Said};
use super::witness::Witness;
use super::{LostSlot, Outcome, Params};
use crate::kernel::Chance;
use crate::scenario::so_far;
use crate::strategy::{Manner, Next, Strategy};

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

/// The environment of a member during its turn, and the buffer for its orders.
pub(super) struct Around<'a> {
    pub(super) now_us: u64,
    pub(super) rules: &'a Rules<'a>,
    pub(super) orders: &'a mut Vec<Order>,
    pub(super) outcome: &'a mut Outcome,
    pub(super) witness: &'a mut Witness,
}

/// An effect that a member requests.
pub(super) enum Order {
    Ask { acceptor: NodeId, slot: usize, ask: Ask },
    Remind { after_us: u64, turn: u32 },
}

pub(super) struct Member {
    number: u32,
    chance: Chance,
    knowledge: Knowledge,
    /// The slot that the member proposes for.
    slot: usize,
    /// The highest attempt in this slot that the member has made or met.
    highest: u64,
    phase: Phase,
    /// Counts phases, so that a timer of an earlier phase is recognised.
    turn: u32,
    tries: u32,
    ballots: u64,
    last_delay_us: u64,
    started_us: u64,
    round_trip: RoundTrip,
    end: Option<End>,
}

enum Phase {
    Resting,
    Preparing(Preparing<Operation>),
    Accepting(Accepting<Operation>),
}

/// The final state of a member.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Done,
    GaveUp,
    TimedOut,
    Killed,
}

impl Member {
    pub(super) fn new(number: u32, seed: u64) -> Self {
        Self {
            number,
            chance: Chance::of(seed, u64::from(number)),
            knowledge: Knowledge::default(),
            slot: 0,
            highest: 0,
            phase: Phase::Resting,
            turn: 0,
            tries: 0,
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
        self.started_us = self.chance.between(0, params.arrive_within.0);
        self.started_us
    }

    pub(super) fn ballots(&self) -> u64 {
        self.ballots
    }

    pub(super) fn end(&self) -> Option<End> {
        self.end
    }

    /// Begins a ballot: for the first slot that is not decided yet, unless the member never rebuilds.
    pub(super) fn begin(&mut self, around: &mut Around<'_>) {
        let rules = around.rules;
        let open = self.knowledge.first_open();
        if rules.strategy.manner() != Manner::Stale && self.slot != open {
            (self.slot, self.highest) = (open, 0);
        }
        self.highest += 1;
        self.tries = self.tries.saturating_add(1);
        self.ballots += 1;
        around.outcome.ballots += 1;
        let (slot, id) = (rules.slot(self.slot), Self::id(self.number));
        let preparing = stored(Preparing::begin(slot, self.highest, id, rules.configuration.clone()));
        self.enter(Phase::Preparing(preparing), around);
    }

    /// Handles the message of an acceptor about a slot.
    pub(super) fn hear(&mut self, from: NodeId, slot: usize, said: Said, around: &mut Around<'_>) {
        match said {
            Said::Promise(reply) => self.promised(from, reply, around),
            Said::Refused { ballot, promised } => {
                self.voted(from, AcceptReply::Nack { ballot, promised }, around);
            }
            Said::Accepted(ballot, operation) => {
                let configuration = &around.rules.configuration;
                let chosen = self.knowledge.vote(slot, from, ballot, operation, configuration);
                if let Some(operation) = chosen {
                    self.learn(slot, operation, around);
                }
                self.voted(from, AcceptReply::Accepted { ballot }, around);
            }
        }
    }

    /// Handles a timer: the wait has ended, or a majority has not answered in time.
    pub(super) fn wake(&mut self, turn: u32, around: &mut Around<'_>) {
        if turn != self.turn || self.end.is_some() {
            return;
        }
        if matches!(self.phase, Phase::Resting) {
            return self.begin(around);
        }
        around.outcome.unanswered += 1;
        if around.rules.strategy.manner() == Manner::Council {
            self.round_trip.ask_again();
            self.ask_silent(around);
        } else {
            self.fail(Class::Timeout, around);
        }
    }

    /// Ends the member's attempts. The member still learns: its operation may be decided later.
    pub(super) fn finish(&mut self, end: End, around: &mut Around<'_>) {
        match (end, self.end) {
            (_, Some(End::Done | End::Killed)) => return,
            (End::Done, Some(_)) => around.outcome.done_after_all += 1,
            (_, Some(_)) => return,
            (_, None) => {}
        }
        self.phase = Phase::Resting;
        self.end = Some(end);
        if end != End::Killed {
            around.outcome.time_us = around.now_us;
        }
    }

    fn promised(&mut self, from: NodeId, reply: PromiseReply<Operation>, around: &mut Around<'_>) {
        let phase = std::mem::replace(&mut self.phase, Phase::Resting);
        let Phase::Preparing(preparing) = phase else {
            self.phase = phase;
            return;
        };
        let (PromiseReply::Promise { ballot, .. } | PromiseReply::Nack { ballot, .. }) = reply;
        if ballot == preparing.ballot() {
            self.round_trip.answered(around.now_us);
        }
        match preparing.answer(from, reply) {
            Prepared::Waiting(still) => self.phase = Phase::Preparing(still),
            Prepared::Free(free) => self.enter(Phase::Accepting(free.propose(self.number)), around),
            Prepared::Bound(accepting) => self.enter(Phase::Accepting(accepting), around),
            Prepared::Preempted(by) => self.preempted(by, around),
        }
    }

    fn voted(&mut self, from: NodeId, reply: AcceptReply, around: &mut Around<'_>) {
        let phase = std::mem::replace(&mut self.phase, Phase::Resting);
        let Phase::Accepting(accepting) = phase else {
            self.phase = phase;
            return;
        };
        let (AcceptReply::Accepted { ballot } | AcceptReply::Nack { ballot, .. }) = reply;
        if ballot == accepting.ballot() {
            self.round_trip.answered(around.now_us);
        }
        match accepting.answer(from, reply) {
            Voted::Waiting(still) => self.phase = Phase::Accepting(still),
            Voted::Preempted(by) => self.preempted(by, around),
            Voted::Chosen(vote) if self.knowledge.decide(self.slot, &around.rules.configuration) => {
                self.learn(self.slot, vote.value, around);
            }
            // A member that does not rebuild has had the decided value decided once more.
            Voted::Chosen(_) => self.fail(Class::Superseded, around),
        }
    }

    /// Learns that a slot is decided.
    fn learn(&mut self, slot: usize, operation: Operation, around: &mut Around<'_>) {
        around.witness.hears(slot, operation);
        if operation == self.number {
            return self.finish(End::Done, around);
        }
        if self.end.is_some() || slot != self.slot || self.highest == 0 {
            return;
        }
        around.outcome.lost_slots += 1;
        let lost = match around.rules.strategy.manner() {
            Manner::Stale => LostSlot::Failed,
            Manner::Rebuild => around.rules.params.lost_slot,
            Manner::Council => LostSlot::Anew,
        };
        let is_asking = !matches!(self.phase, Phase::Resting);
        match lost {
            LostSlot::Anew => {
                (self.tries, self.last_delay_us) = (0, 0);
                self.begin(around);
            }
            LostSlot::GoOn => self.begin(around),
            LostSlot::Failed if is_asking => self.fail(Class::Superseded, around),
            LostSlot::Failed => {}
        }
    }

    fn preempted(&mut self, by: Ballot, around: &mut Around<'_>) {
        around.outcome.preempted += 1;
        self.highest = self.highest.max(by.attempt());
        self.fail(Class::Superseded, around);
    }

    /// Handles a failed attempt: the member waits, or gives up.
    fn fail(&mut self, class: Class, around: &mut Around<'_>) {
        let params = around.rules.params;
        self.phase = Phase::Resting;
        self.turn += 1;
        let mut so_far = so_far(self.tries, around.now_us - self.started_us, self.last_delay_us);
        so_far.deadline = Some(params.deadline.duration());
        let is_last = params.attempts > 0 && self.tries >= params.attempts;
        let (round_trip_us, roll) = (self.round_trip.mean_us(), self.chance.roll());
        let next = around.rules.strategy.next_after(round_trip_us, &so_far, &Failure::new(class), roll);
        match next {
            Next::Wait(delay_us) if !is_last => {
                self.last_delay_us = delay_us;
                around.outcome.delays.count(delay_us);
                around.orders.push(Order::Remind { after_us: delay_us, turn: self.turn });
            }
            Next::GiveUp(Refusal::Deadline) => self.finish(End::TimedOut, around),
            Next::Wait(_) | Next::GiveUp(_) => self.finish(End::GaveUp, around),
        }
    }

    /// Enters a phase in which the member asks all acceptors.
    fn enter(&mut self, phase: Phase, around: &mut Around<'_>) {
        self.phase = phase;
        self.round_trip.ask(around.now_us);
        self.ask_silent(around);
    }

    /// Asks the acceptors that have not agreed yet, and sets a timer for the answers.
    fn ask_silent(&mut self, around: &mut Around<'_>) {
        let (silent, ask): (Vec<NodeId>, _) = match &self.phase {
            Phase::Resting => return,
            Phase::Preparing(preparing) => (preparing.silent().collect(), Ask::Prepare(preparing.ballot())),
            Phase::Accepting(accepting) => {
                (accepting.silent().collect(), Ask::Accept(accepting.ballot(), *accepting.value()))
            }
        };
        let slot = self.slot;
        around.orders.extend(silent.into_iter().map(|acceptor| Order::Ask { acceptor, slot, ask }));
        self.turn += 1;
        let after_us = around.rules.params.answer_within.0;
        around.orders.push(Order::Remind { after_us, turn: self.turn });
    }
}

#[cfg(test)]
mod tests;

//! The duel itself: members, acceptors, and the messages between them.

use std::collections::BTreeSet;

use holdoff_paxos::{Ballot, Configuration, NodeId};

use super::member::{Effect, Member, MemberContext, MemberEnd, Rules};
use super::network::{AcceptorMessage, AcceptorRequest, Acceptors, Network, Operation};
use super::rank::Ranks;
use super::{Outcome, Params};
use crate::Strategy;
use crate::kernel::{EventQueue, SimRng, mix};

enum Event {
    Start(u32),
    Request { member: u32, acceptor: u32, slot: usize, request: AcceptorRequest },
    Reply { acceptor: u32, member: u32, slot: usize, message: AcceptorMessage },
    Timer { member: u32, turn: u32 },
    Deadline(u32),
}

pub(super) struct DuelRun<'a> {
    rules: Rules<'a>,
    events: EventQueue<Event>,
    network: Network<'a>,
    members: Vec<Member>,
    acceptors: Acceptors,
    /// The member that is killed when its first prepare has left.
    killed_member: Option<u32>,
    /// The members that are done, in order.
    done: Vec<u32>,
    effects: Vec<Effect>,
    checker: SafetyChecker,
    outcome: Outcome,
}

/// The random number stream of a run's incidents; members use the seed's own streams, links use others.
const RUN: u64 = 3;

impl<'a> DuelRun<'a> {
    pub(super) fn new(params: &'a Params, strategy: &Strategy, seed: u64) -> Option<Self> {
        let acceptors = (0..params.acceptors).map(|number| NodeId(u128::from(number)));
        let configuration = Configuration::new(acceptors).ok()?;
        let mut rng = SimRng::of(mix(seed, RUN), 0);
        let first_slot = rng.between(1, u64::from(u32::MAX));
        let strategy = if params.attempts > 0 { strategy.without_attempt_limit() } else { strategy.clone() };
        let rules = Rules { params, strategy, configuration, first_slot };
        let first_ballot = |number: &u32| Ballot::new(rules.slot(0), 1, Member::id(*number));
        let killed_member = rng.happens(params.kill).then(|| (0..params.clients).max_by_key(first_ballot));
        Some(Self {
            killed_member: killed_member.flatten(),
            events: EventQueue::new(),
            network: Network::new(params, seed),
            members: (0..params.clients).map(|number| Member::new(number, seed)).collect(),
            acceptors: Acceptors::new(params.acceptors),
            done: Vec::new(),
            effects: Vec::new(),
            checker: SafetyChecker::default(),
            outcome: Outcome::default(),
            rules,
        })
    }

    pub(super) fn run(mut self) -> Outcome {
        for (number, member) in (0..).zip(&mut self.members) {
            let start_us = member.draw_start_us(self.rules.params);
            self.events.push(start_us, Event::Start(number));
            let deadline_us = start_us.saturating_add(self.rules.params.deadline.0);
            self.events.push(deadline_us, Event::Deadline(number));
        }
        while let Some((now_us, event)) = self.events.pop() {
            self.outcome.events += 1;
            self.handle(now_us, event);
        }
        self.finish()
    }

    fn handle(&mut self, now_us: u64, event: Event) {
        match event {
            Event::Start(number) => {
                self.act(number, now_us, Member::begin);
                if self.killed_member == Some(number) {
                    self.act(number, now_us, |member, context| member.finish(MemberEnd::Killed, context));
                }
            }
            Event::Request { member, acceptor, slot, request } => {
                self.request(member, acceptor, slot, request);
            }
            Event::Reply { acceptor, member, slot, message } => {
                let from = NodeId(u128::from(acceptor));
                self.act(member, now_us, |member, context| member.hear(from, slot, message, context));
            }
            Event::Timer { member, turn } => {
                self.act(member, now_us, |member, context| member.wake(turn, context));
            }
            Event::Deadline(number) => {
                self.act(number, now_us, |member, context| member.finish(MemberEnd::TimedOut, context));
            }
        }
    }

    /// Handles a request to an acceptor. Votes go to every member, all other replies to the requester.
    fn request(&mut self, member: u32, acceptor: u32, slot: usize, request: AcceptorRequest) {
        let Some(message) = self.acceptors.answer(acceptor, slot, request) else { return };
        let all = 0..self.rules.params.clients;
        let receivers =
            if matches!(message, AcceptorMessage::Accepted(..)) { all } else { member..member + 1 };
        for member in receivers {
            if let Some(hop_us) = self.network.by_acceptor(acceptor) {
                self.events
                    .push_after(hop_us, Event::Reply { acceptor, member, slot, message: message.clone() });
            }
        }
    }

    /// Gives a member a turn, unless it was killed, and executes its effects.
    fn act(&mut self, number: u32, now_us: u64, turn: impl FnOnce(&mut Member, &mut MemberContext<'_>)) {
        let Self { rules, effects, outcome, checker, .. } = self;
        let Some(member) = self.members.get_mut(number as usize) else { return };
        let before = member.end();
        if before == Some(MemberEnd::Killed) {
            return;
        }
        turn(member, &mut MemberContext { now_us, rules, effects, outcome, checker });
        if before != Some(MemberEnd::Done) && member.end() == Some(MemberEnd::Done) {
            self.done.push(number);
            outcome.done_over_time.count(now_us);
        }
        self.execute(number, now_us);
    }

    fn execute(&mut self, number: u32, now_us: u64) {
        for effect in self.effects.drain(..) {
            match effect {
                Effect::SetTimer { after_us, turn } => {
                    self.events.push_after(after_us, Event::Timer { member: number, turn });
                }
                Effect::Send { acceptor, slot, request } => {
                    self.outcome.calls += 1;
                    self.outcome.calls_over_time.count(now_us);
                    let acceptor = u32::try_from(acceptor.0).unwrap_or(u32::MAX);
                    if let Some(hop_us) = self.network.by_member(number) {
                        self.events
                            .push_after(hop_us, Event::Request { member: number, acceptor, slot, request });
                    }
                }
            }
        }
    }

    fn finish(mut self) -> Outcome {
        let ended = |end| self.members.iter().filter(|member| member.end() == Some(end)).count() as u64;
        let outcome = &mut self.outcome;
        (outcome.done, outcome.killed) = (ended(MemberEnd::Done), ended(MemberEnd::Killed));
        (outcome.gave_up, outcome.timed_out) = (ended(MemberEnd::GaveUp), ended(MemberEnd::TimedOut));
        outcome.living = self.members.len() as u64 - outcome.killed;
        outcome.most_ballots = self.members.iter().map(Member::ballots).max().unwrap_or(0);
        (outcome.slots, outcome.broken) = (self.checker.slots(), self.checker.broken());
        outcome.lost_messages = self.network.lost;
        let is_alive = self.members.iter().map(|member| member.end() != Some(MemberEnd::Killed));
        outcome.ranks = Ranks::of(&self.done, is_alive);
        self.outcome
    }
}

/// The decisions that any member has learned, slot by slot.
#[derive(Default)]
pub(super) struct SafetyChecker {
    slots: Vec<Option<Operation>>,
    operations: BTreeSet<Operation>,
    broken: u64,
}

impl SafetyChecker {
    /// Records that a member has learned the operation of a slot. All members must learn the same operation, and each
    /// operation must have one slot.
    pub(super) fn learned(&mut self, slot: usize, operation: Operation) {
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, None);
        }
        let Some(known) = self.slots.get_mut(slot) else { return };
        let is_true = match *known {
            Some(known) => known == operation,
            None => self.operations.insert(operation),
        };
        *known = Some(operation);
        self.broken += u64::from(!is_true);
    }

    /// Returns the number of slots that at least one member knows to be decided.
    pub(super) fn slots(&self) -> u64 {
        self.slots.iter().flatten().count() as u64
    }

    /// Returns how often two members disagreed about a slot, or an operation had a second slot.
    pub(super) fn broken(&self) -> u64 {
        self.broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disagreement_and_duplicates_are_counted() {
        let mut checker = SafetyChecker::default();
        for (slot, operation, broken) in [(0, 7, 0), (0, 7, 0), (2, 9, 0), (0, 8, 1), (1, 9, 2)] {
            checker.learned(slot, operation);
            assert_eq!(checker.broken(), broken, "{slot} {operation}");
        }
        assert_eq!(checker.slots(), 3);
    }
}

//! The duel itself: members, acceptors, and the messages between them.

use holdoff_paxos::{Ballot, Configuration, NodeId};

use super::member::{Around, End, Member, Order, Rules};
use super::panel::Panel;
use super::rank::Ranks;
use super::wire::{Ask, Said, Wire};
use super::witness::Witness;
use super::{Outcome, Params};
use crate::Strategy;
use crate::kernel::{Chance, EventQueue, mix};

enum Event {
    Start(u32),
    Asked { member: u32, acceptor: u32, slot: usize, ask: Ask },
    Said { acceptor: u32, member: u32, slot: usize, said: Said },
    Timer { member: u32, turn: u32 },
    Deadline(u32),
}

pub(super) struct Contest<'a> {
    rules: Rules<'a>,
    events: EventQueue<Event>,
    wire: Wire<'a>,
    members: Vec<Member>,
    panel: Panel,
    /// The member that is killed when its first prepare has left.
    doomed: Option<u32>,
    /// The members that are done, in order.
    done: Vec<u32>,
    orders: Vec<Order>,
    witness: Witness,
    outcome: Outcome,
}

/// The random number stream of a run's incidents; members use the seed's own streams, links use others.
const RUN: u64 = 3;

impl<'a> Contest<'a> {
    pub(super) fn new(params: &'a Params, strategy: &Strategy, seed: u64) -> Option<Self> {
        let acceptors = (0..params.acceptors).map(|number| NodeId(u128::from(number)));
        let configuration = Configuration::new(acceptors).ok()?;
        let mut chance = Chance::of(mix(seed, RUN), 0);
        let first_slot = chance.between(1, u64::from(u32::MAX));
        let strategy = if params.attempts > 0 { strategy.without_last_try() } else { strategy.clone() };
        let rules = Rules { params, strategy, configuration, first_slot };
        let first_ballot = |number: &u32| Ballot::new(rules.slot(0), 1, Member::id(*number));
        let doomed = chance.happens(params.kill).then(|| (0..params.clients).max_by_key(first_ballot));
        Some(Self {
            doomed: doomed.flatten(),
            events: EventQueue::new(),
            wire: Wire::new(params, seed),
            members: (0..params.clients).map(|number| Member::new(number, seed)).collect(),
            panel: Panel::new(params.acceptors),
            done: Vec::new(),
            orders: Vec::new(),
            witness: Witness::default(),
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
            self.happen(now_us, event);
        }
        self.sum_up()
    }

    fn happen(&mut self, now_us: u64, event: Event) {
        match event {
            Event::Start(number) => {
                self.act(number, now_us, Member::begin);
                if self.doomed == Some(number) {
                    self.act(number, now_us, |member, around| member.finish(End::Killed, around));
                }
            }
            Event::Asked { member, acceptor, slot, ask } => self.ask(member, acceptor, slot, ask),
            Event::Said { acceptor, member, slot, said } => {
                let from = NodeId(u128::from(acceptor));
                self.act(member, now_us, |member, around| member.hear(from, slot, said, around));
            }
            Event::Timer { member, turn } => {
                self.act(member, now_us, |member, around| member.wake(turn, around));
            }
            Event::Deadline(number) => {
                self.act(number, now_us, |member, around| member.finish(End::TimedOut, around));
            }
        }
    }

    /// Handles a request to an acceptor. Votes go to every member, all other replies to the requester.
    fn ask(&mut self, member: u32, acceptor: u32, slot: usize, ask: Ask) {
        let Some(said) = self.panel.answer(acceptor, slot, ask) else { return };
        let everybody = 0..self.rules.params.clients;
        let told = if matches!(said, Said::Accepted(..)) { everybody } else { member..member + 1 };
        for member in told {
            if let Some(hop_us) = self.wire.by_acceptor(acceptor) {
                self.events.push_after(hop_us, Event::Said { acceptor, member, slot, said: said.clone() });
            }
        }
    }

    /// Gives a member a turn, unless it was killed, and executes its orders.
    fn act(&mut self, number: u32, now_us: u64, turn: impl FnOnce(&mut Member, &mut Around<'_>)) {
        let Self { rules, orders, outcome, witness, .. } = self;
        let Some(member) = self.members.get_mut(number as usize) else { return };
        let before = member.end();
        if before == Some(End::Killed) {
            return;
        }
        turn(member, &mut Around { now_us, rules, orders, outcome, witness });
        if before != Some(End::Done) && member.end() == Some(End::Done) {
            self.done.push(number);
            outcome.done_over_time.count(now_us);
        }
        self.carry_out(number, now_us);
    }

    fn carry_out(&mut self, number: u32, now_us: u64) {
        for order in self.orders.drain(..) {
            match order {
                Order::Remind { after_us, turn } => {
                    self.events.push_after(after_us, Event::Timer { member: number, turn });
                }
                Order::Ask { acceptor, slot, ask } => {
                    self.outcome.calls += 1;
                    self.outcome.calls_over_time.count(now_us);
                    let acceptor = u32::try_from(acceptor.0).unwrap_or(u32::MAX);
                    if let Some(hop_us) = self.wire.by_member(number) {
                        self.events.push_after(hop_us, Event::Asked { member: number, acceptor, slot, ask });
                    }
                }
            }
        }
    }

    fn sum_up(mut self) -> Outcome {
        let ended = |end| self.members.iter().filter(|member| member.end() == Some(end)).count() as u64;
        let outcome = &mut self.outcome;
        (outcome.done, outcome.killed) = (ended(End::Done), ended(End::Killed));
        (outcome.gave_up, outcome.timed_out) = (ended(End::GaveUp), ended(End::TimedOut));
        outcome.living = self.members.len() as u64 - outcome.killed;
        outcome.most_ballots = self.members.iter().map(Member::ballots).max().unwrap_or(0);
        (outcome.slots, outcome.broken) = (self.witness.slots(), self.witness.broken());
        outcome.lost_messages = self.wire.lost;
        let is_alive = self.members.iter().map(|member| member.end() != Some(End::Killed));
        outcome.ranks = Ranks::of(&self.done, is_alive);
        self.outcome
    }
}

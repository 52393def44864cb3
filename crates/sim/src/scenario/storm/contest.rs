//! The path of the contenders through the storm.

use std::collections::VecDeque;

use super::store::{Peak, Store};
use holdoff_policy::{Class, Failure, Refusal, SoFar};

use super::super::so_far;
use super::{Outcome, Params};
use crate::kernel::{Chance, EventQueue};
use crate::strategy::{Next, Strategy};

/// A call of a contender to the store.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    Acquire,
    /// Checks whether another contender has done the work.
    Probe,
    /// The same check by the holder of the lock.
    ProbeUnderLock,
    Release,
}

#[derive(Clone, Copy)]
enum Event {
    Arrive(u32),
    AtStore(u32, Call),
    Served(u32, Call),
    Answer { contender: u32, call: Call, is_yes: bool },
    WaitOver(u32),
    WorkOver(u32),
}

struct Contender {
    chance: Chance,
    arrived_us: u64,
    last_delay_us: u64,
    tries: u32,
    has_called: bool,
}

/// The contenders of a process that queue in front; the first one is the caller.
type Queue = VecDeque<u32>;

pub(super) struct Contest<'a> {
    params: &'a Params,
    strategy: &'a Strategy,
    events: EventQueue<Event>,
    contenders: Vec<Contender>,
    queues: Vec<Queue>,
    store: Store,
    peak: Peak,
    retry_peak: Peak,
    outcome: Outcome,
}

impl<'a> Contest<'a> {
    pub(super) fn new(params: &'a Params, strategy: &'a Strategy, seed: u64) -> Self {
        let mut events = EventQueue::with_capacity(params.clients as usize);
        let arrive = |number| {
            let mut chance = Chance::of(seed, u64::from(number));
            let arrived_us = chance.between(0, params.arrive_within.0);
            events.push(arrived_us, Event::Arrive(number));
            Contender { chance, arrived_us, last_delay_us: 0, tries: 0, has_called: false }
        };
        let contenders = (0..params.clients).map(arrive).collect();
        Self {
            params,
            strategy,
            events,
            contenders,
            queues: (0..params.processes.max(1)).map(|_| Queue::new()).collect(),
            store: Store::new(params.request_cost.0, params.store_workers),
            peak: Peak::default(),
            retry_peak: Peak::default(),
            outcome: Outcome::default(),
        }
    }

    pub(super) fn run(mut self) -> Outcome {
        while let Some((now_us, event)) = self.events.pop() {
            self.outcome.events += 1;
            self.handle(now_us, event);
        }
        self.outcome.peak_calls_per_ms = self.peak.highest();
        self.outcome.peak_retries_per_ms = self.retry_peak.highest();
        self.outcome
    }

    fn handle(&mut self, now_us: u64, event: Event) {
        match event {
            Event::Arrive(number) => self.arrive(number),
            Event::AtStore(number, call) => self.reach_store(number, call, now_us),
            Event::Served(number, call) => self.serve(number, call),
            Event::Answer { contender, call, is_yes } => self.answer(contender, call, is_yes, now_us),
            Event::WaitOver(number) => self.look_or_acquire(number),
            Event::WorkOver(number) => {
                self.outcome.worked += 1;
                self.store.is_done = true;
                self.call(number, Call::Release);
                self.conclude(number, now_us);
            }
        }
    }

    fn arrive(&mut self, number: u32) {
        if self.params.queue_in_process {
            let Some(queue) = self.queue_of(number) else { return };
            queue.push_back(number);
            if queue.len() > 1 {
                return;
            }
        }
        self.call(number, Call::Acquire);
    }

    fn look_or_acquire(&mut self, number: u32) {
        let call = if self.params.probe { Call::Probe } else { Call::Acquire };
        self.call(number, call);
    }

    fn call(&mut self, number: u32, call: Call) {
        let hop_us = self.hop_us(number);
        self.events.push_after(hop_us, Event::AtStore(number, call));
    }

    fn reach_store(&mut self, number: u32, call: Call, now_us: u64) {
        self.outcome.calls += 1;
        self.outcome.calls_over_time.count(now_us);
        self.peak.count(now_us);
        let Some(contender) = self.contenders.get_mut(number as usize) else { return };
        if std::mem::replace(&mut contender.has_called, true) {
            self.retry_peak.count(now_us);
        }
        let served_us = self.store.serve_us(now_us);
        self.events.push(served_us, Event::Served(number, call));
    }

    fn serve(&mut self, number: u32, call: Call) {
        let is_yes = match call {
            Call::Acquire => *self.store.holder.get_or_insert(number) == number,
            Call::Probe | Call::ProbeUnderLock => self.store.is_done,
            Call::Release => {
                self.store.holder = None;
                // The contender does not wait for this answer.
                return;
            }
        };
        let hop_us = self.hop_us(number);
        self.events.push_after(hop_us, Event::Answer { contender: number, call, is_yes });
    }

    fn answer(&mut self, number: u32, call: Call, is_yes: bool, now_us: u64) {
        // A contender that was granted the lock in time and finds the work not done does it.
        let goes_on = (call, is_yes) == (Call::ProbeUnderLock, false);
        if !goes_on && !self.has_patience(number, now_us) {
            return self.time_out(number, call, is_yes, now_us);
        }
        match (call, is_yes) {
            (Call::Acquire, true) if self.params.probe => self.call(number, Call::ProbeUnderLock),
            (Call::Acquire, true) | (Call::ProbeUnderLock, false) => {
                self.events.push_after(self.params.hold.0, Event::WorkOver(number));
            }
            (Call::Acquire, false) => self.back_off(number, now_us),
            (Call::Probe, false) => self.call(number, Call::Acquire),
            (Call::ProbeUnderLock, true) => {
                self.outcome.found_done += 1;
                self.call(number, Call::Release);
                self.conclude(number, now_us);
            }
            (Call::Probe, true) => {
                self.outcome.found_done += 1;
                self.conclude(number, now_us);
            }
            (Call::Release, _) => {}
        }
    }

    /// Handles an answer after the timeout; a lock granted with it is released.
    fn time_out(&mut self, number: u32, call: Call, is_yes: bool, now_us: u64) {
        if is_yes && matches!(call, Call::Acquire | Call::ProbeUnderLock) {
            self.call(number, Call::Release);
        }
        self.give_up(number, Refusal::Deadline, now_us);
    }

    fn back_off(&mut self, number: u32, now_us: u64) {
        let Some(contender) = self.contenders.get_mut(number as usize) else { return };
        contender.tries = contender.tries.saturating_add(1);
        let so_far = SoFar {
            deadline: Some(self.params.patience.duration()),
            ..so_far(contender.tries, now_us.saturating_sub(contender.arrived_us), contender.last_delay_us)
        };
        let roll = contender.chance.roll();
        match self.strategy.next(&so_far, &Failure::new(Class::Contended), roll) {
            Next::Wait(delay_us) => {
                contender.last_delay_us = delay_us;
                self.outcome.delays.count(delay_us);
                self.events.push_after(delay_us, Event::WaitOver(number));
            }
            Next::GiveUp(refusal) => self.give_up(number, refusal, now_us),
        }
    }

    fn give_up(&mut self, number: u32, refusal: Refusal, now_us: u64) {
        match refusal {
            Refusal::Deadline => self.outcome.timed_out += 1,
            _ => self.outcome.exhausted += 1,
        }
        self.conclude(number, now_us);
    }

    /// Records the final answer of a contender; the next one in its queue follows.
    fn conclude(&mut self, number: u32, now_us: u64) {
        self.outcome.time_us = now_us;
        if !self.params.queue_in_process {
            return;
        }
        if let Some(queue) = self.queue_of(number) {
            queue.pop_front();
        }
        while let Some(next) = self.queue_of(number).and_then(|queue| queue.front().copied()) {
            if self.has_patience(next, now_us) {
                return self.look_or_acquire(next);
            }
            self.outcome.timed_out += 1;
            if let Some(queue) = self.queue_of(number) {
                queue.pop_front();
            }
        }
    }

    fn has_patience(&self, number: u32, now_us: u64) -> bool {
        let arrived_us = self.contenders.get(number as usize).map_or(0, |it| it.arrived_us);
        now_us.saturating_sub(arrived_us) < self.params.patience.0
    }

    fn queue_of(&mut self, number: u32) -> Option<&mut Queue> {
        let process = number % self.params.processes.max(1);
        self.queues.get_mut(process as usize)
    }

    fn hop_us(&mut self, number: u32) -> u64 {
        let chance = self.contenders.get_mut(number as usize).map(|it| &mut it.chance);
        chance.map_or(0, |chance| self.params.hop.draw_us(chance))
    }
}

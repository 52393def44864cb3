//! A storm on one lock.
//!
//! N contenders on P processes acquire the same lock at the same time, as when an alert storm makes every replica
//! create the same task. The lock lives in a store: each call travels a hop, waits for one of the store's workers,
//! takes the request's cost, and its answer travels a hop back.
//!
//! A contender tries to acquire the lock. If it is refused, it backs off as its strategy says and tries again, until
//! its timeout (`acquire_timeout`) or its attempts are exhausted. If the lock is granted, it works for the hold time, then
//! releases the lock.
//!
//! The timeout is checked at every answer. If the timeout has passed when the store grants the lock or reports the work
//! as done, the contender counts as timed out, and a granted lock is released at once. A contender that was granted the
//! lock in time does the work, however late it ends.
//!
//! With the **probe** there is one piece of work for all contenders: after each wait a contender first checks whether
//! another contender has done it, and a contender that acquires the lock checks once more under the lock. Without the
//! probe every contender has its own work, so that all must hold the lock in turn.
//!
//! Contenders of one process either each call the store, or **queue in front**: only the first of the queue calls, and
//! the next one follows when it is answered.
//!
//! The time of a run is the time of the last contender's answer, also if it is a refusal; its calls are all calls to
//! the store. Peaks are counted where calls reach the store, within each millisecond.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use holdoff_policy::{Class, Failure, GiveUpReason, SoFar};
use serde::{Deserialize, Serialize};

use super::{RunResult, so_far};
use crate::kernel::{EventQueue, Latency, SimRng};
use crate::strategy::StrategyDecision;
use crate::{Histogram, Micros, Series, Strategy};

/// The parameters of the storm.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Params {
    /// The number of contenders.
    pub clients: u32,
    /// The number of processes; at least one.
    pub processes: u32,
    /// The interval in which the contenders arrive, uniformly at random; with zero all arrive at once.
    pub arrive_within: Micros,
    /// The duration of the work under the lock.
    pub hold: Micros,
    /// The service time of one call at the store.
    pub request_cost: Micros,
    /// The number of calls that the store serves concurrently; at least one.
    pub store_workers: u32,
    /// The travel time of a call or an answer.
    pub hop: Latency,
    /// Whether one contender's work serves all, and contenders probe for it.
    pub probe: bool,
    /// Whether contenders of one process queue in front of the lock.
    pub queue_in_process: bool,
    /// The time after which a waiting contender counts as timed out.
    pub acquire_timeout: Micros,
}

impl Default for Params {
    /// A hundred signals on three processes, one piece of work of a second.
    fn default() -> Self {
        Self {
            clients: 100,
            processes: 3,
            arrive_within: Micros(0),
            hold: Micros::from_secs(1),
            request_cost: Micros(200),
            store_workers: 8,
            hop: Latency::Normal { mean: Micros::from_millis(1), sd: Micros(200) },
            probe: true,
            queue_in_process: false,
            acquire_timeout: Micros::from_secs(30),
        }
    }
}

/// The outcome of one run.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Outcome {
    /// The time of the last contender's answer.
    pub time_us: u64,
    /// Calls to the store, of every kind.
    pub calls: u64,
    /// The most calls that reached the store within one millisecond.
    pub peak_calls_per_ms: u64,
    /// The same without each contender's first call: the herd that the strategy causes.
    pub peak_retries_per_ms: u64,
    /// The number of times the work was done.
    pub worked: u64,
    /// Contenders that found the work done by another contender.
    pub found_done: u64,
    /// Contenders that timed out before they succeeded.
    pub timed_out: u64,
    /// Contenders whose attempts were exhausted.
    pub exhausted: u64,
    /// Calls by the time they reached the store.
    pub calls_over_time: Series,
    /// The delays between attempts.
    pub delays: Histogram,
    /// Events that the kernel handled.
    pub events: u64,
}

impl Outcome {
    pub(super) fn run_result(self) -> RunResult {
        RunResult::new(self.time_us, self.calls, self.timed_out + self.exhausted)
            .figure("peak_calls_per_ms", self.peak_calls_per_ms)
            .figure("peak_retries_per_ms", self.peak_retries_per_ms)
            .figure("worked", self.worked)
            .figure("found_done", self.found_done)
            .figure("timed_out", self.timed_out)
            .figure("exhausted", self.exhausted)
            .plots(self.calls_over_time, self.delays)
    }
}

/// Runs the storm once.
pub fn run(params: &Params, strategy: &Strategy, seed: u64) -> Outcome {
    StormRun::new(params, strategy, seed).run()
}

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
    rng: SimRng,
    arrived_us: u64,
    last_delay_us: u64,
    attempts: u32,
    has_called: bool,
}

/// The contenders of a process that queue in front; the first one is the caller.
type Queue = VecDeque<u32>;

struct StormRun<'a> {
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

impl<'a> StormRun<'a> {
    fn new(params: &'a Params, strategy: &'a Strategy, seed: u64) -> Self {
        let mut events = EventQueue::with_capacity(params.clients as usize);
        let arrive = |number| {
            let mut rng = SimRng::of(seed, u64::from(number));
            let arrived_us = rng.between(0, params.arrive_within.0);
            events.push(arrived_us, Event::Arrive(number));
            Contender { rng, arrived_us, last_delay_us: 0, attempts: 0, has_called: false }
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

    fn run(mut self) -> Outcome {
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
        if !goes_on && !self.is_in_time(number, now_us) {
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
        self.give_up(number, GiveUpReason::Deadline, now_us);
    }

    fn back_off(&mut self, number: u32, now_us: u64) {
        let Some(contender) = self.contenders.get_mut(number as usize) else { return };
        contender.attempts = contender.attempts.saturating_add(1);
        let so_far = SoFar {
            deadline: Some(self.params.acquire_timeout.duration()),
            ..so_far(contender.attempts, now_us.saturating_sub(contender.arrived_us), contender.last_delay_us)
        };
        let roll = contender.rng.roll();
        match self.strategy.next(&so_far, &Failure::new(Class::Contended), roll) {
            StrategyDecision::Wait(delay_us) => {
                contender.last_delay_us = delay_us;
                self.outcome.delays.count(delay_us);
                self.events.push_after(delay_us, Event::WaitOver(number));
            }
            StrategyDecision::GiveUp(refusal) => self.give_up(number, refusal, now_us),
        }
    }

    fn give_up(&mut self, number: u32, refusal: GiveUpReason, now_us: u64) {
        match refusal {
            GiveUpReason::Deadline => self.outcome.timed_out += 1,
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
            if self.is_in_time(next, now_us) {
                return self.look_or_acquire(next);
            }
            self.outcome.timed_out += 1;
            if let Some(queue) = self.queue_of(number) {
                queue.pop_front();
            }
        }
    }

    fn is_in_time(&self, number: u32, now_us: u64) -> bool {
        let arrived_us = self.contenders.get(number as usize).map_or(0, |it| it.arrived_us);
        now_us.saturating_sub(arrived_us) < self.params.acquire_timeout.0
    }

    fn queue_of(&mut self, number: u32) -> Option<&mut Queue> {
        let process = number % self.params.processes.max(1);
        self.queues.get_mut(process as usize)
    }

    fn hop_us(&mut self, number: u32) -> u64 {
        let rng = self.contenders.get_mut(number as usize).map(|it| &mut it.rng);
        rng.map_or(0, |rng| self.params.hop.draw_us(rng))
    }
}

/// The workers of the store, and the lock.
struct Store {
    cost_us: u64,
    /// The time when each worker is free again.
    workers: BinaryHeap<Reverse<u64>>,
    holder: Option<u32>,
    is_done: bool,
}

impl Store {
    fn new(cost_us: u64, workers: u32) -> Self {
        let workers = (0..workers.max(1)).map(|_| Reverse(0)).collect();
        Self { cost_us, workers, holder: None, is_done: false }
    }

    /// Returns the time when a call that arrives now has been served. Calls are served in the order of arrival.
    fn serve_us(&mut self, now_us: u64) -> u64 {
        let free_us = self.workers.pop().map_or(0, |Reverse(free_us)| free_us);
        let served_us = free_us.max(now_us).saturating_add(self.cost_us);
        self.workers.push(Reverse(served_us));
        served_us
    }
}

/// The peak number of events within one millisecond; times must be in order.
#[derive(Default)]
struct Peak {
    millisecond: u64,
    count: u64,
    highest: u64,
}

impl Peak {
    fn count(&mut self, at_us: u64) {
        let millisecond = at_us / 1000;
        if millisecond != self.millisecond {
            (self.millisecond, self.count) = (millisecond, 0);
        }
        self.count += 1;
        self.highest = self.highest.max(self.count);
    }

    fn highest(&self) -> u64 {
        self.highest
    }
}

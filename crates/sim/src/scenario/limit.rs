//! A rate limit and a fleet.
//!
//! Every client of a fleet has one request for a server that admits calls by a token bucket. The bucket holds at most
//! `burst` tokens, gains `rate_per_sec` tokens evenly, and each admitted call takes one. A call that finds no token is
//! answered 429, with a `Retry-After` if `retry_after` is not zero. The value is the same for all clients, as is usual
//! for servers: clients that obey it exactly return as one herd, find `burst` tokens, and get the same answer again.
//!
//! A policy honours `Retry-After` as it declares, with its own spread. A classic ignores it, and `honour = false` makes
//! all clients ignore it.
//!
//! The time of a run is the time of the last answer, the time to drain; its calls are all calls. Wasted calls are those
//! answered 429.

use std::time::Duration;

use holdoff_policy::{Class, Failure, TokenBucket, TokenRate};
use serde::{Deserialize, Serialize};

use super::{RunResult, so_far};
use crate::kernel::{EventQueue, Latency, SimRng};
use crate::strategy::{Strategy, StrategyDecision};
use crate::{Histogram, Micros, Series};

/// The parameters of the rate limit.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Params {
    /// The number of clients in the fleet.
    pub clients: u32,
    /// The number of tokens that the bucket gains in a second.
    pub rate_per_sec: u32,
    /// The capacity of the bucket; it starts full.
    pub burst: u32,
    /// The `Retry-After` of a 429; zero sends none.
    pub retry_after: Micros,
    /// Whether the clients see it.
    pub honour: bool,
    /// The travel time of a call or an answer.
    pub hop: Latency,
    /// The time at which the run ends for clients that are still not served.
    pub horizon: Micros,
}

impl Default for Params {
    /// Five hundred clients, a hundred calls a second, a burst of twenty, and a `Retry-After` of one second.
    fn default() -> Self {
        Self {
            clients: 500,
            rate_per_sec: 100,
            burst: 20,
            retry_after: Micros::from_secs(1),
            honour: true,
            hop: Latency::normal_ms(10, 2),
            horizon: Micros::from_secs(600),
        }
    }
}

/// The outcome of one run.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Outcome {
    /// The time of the last client's last answer; the horizon if some clients had none.
    pub time_us: u64,
    /// Calls, refused ones included.
    pub calls: u64,
    /// Calls answered 429.
    pub wasted: u64,
    /// Clients that gave up.
    pub gave_up: u64,
    /// Clients that were still retrying at the horizon.
    pub unserved: u64,
    /// Calls by the time they reached the server.
    pub calls_over_time: Series,
    /// The delays between attempts.
    pub delays: Histogram,
    /// Events that the kernel handled.
    pub events: u64,
}

impl Outcome {
    pub(super) fn run_result(self) -> RunResult {
        RunResult::new(self.time_us, self.calls, self.gave_up + self.unserved)
            .figure("wasted", self.wasted)
            .figure("gave_up", self.gave_up)
            .figure("unserved", self.unserved)
            .plots(self.calls_over_time, self.delays)
    }
}

#[derive(Clone, Copy)]
enum Event {
    Call(u32),
    Answer { client: u32, is_admitted: bool },
}

struct Client {
    rng: SimRng,
    attempts: u32,
    last_delay_us: u64,
}

/// Runs the scenario once.
pub fn run(params: &Params, strategy: &Strategy, seed: u64) -> Outcome {
    let mut fleet = Fleet::new(params, strategy, seed);
    while let Some((now_us, event)) = fleet.events.pop_until(params.horizon.0) {
        fleet.outcome.events += 1;
        fleet.handle(now_us, event);
    }
    fleet.outcome.unserved = fleet.waiting;
    if fleet.waiting > 0 {
        fleet.outcome.time_us = params.horizon.0;
    }
    fleet.outcome
}

struct Fleet<'a> {
    params: &'a Params,
    strategy: &'a Strategy,
    events: EventQueue<Event>,
    clients: Vec<Client>,
    rate: TokenRate,
    bucket: TokenBucket,
    /// Clients without a last answer.
    waiting: u64,
    outcome: Outcome,
}

impl<'a> Fleet<'a> {
    fn new(params: &'a Params, strategy: &'a Strategy, seed: u64) -> Self {
        let mut events = EventQueue::with_capacity(params.clients as usize);
        let start = |number| {
            let mut rng = SimRng::of(seed, u64::from(number));
            events.push(params.hop.draw_us(&mut rng), Event::Call(number));
            Client { rng, attempts: 0, last_delay_us: 0 }
        };
        let clients = (0..params.clients).map(start).collect();
        let interval = Duration::from_secs(1).checked_div(params.rate_per_sec).unwrap_or(Duration::MAX);
        Self {
            params,
            strategy,
            events,
            clients,
            rate: TokenRate::new(interval, params.burst),
            bucket: TokenBucket::default(),
            waiting: u64::from(params.clients),
            outcome: Outcome::default(),
        }
    }

    fn handle(&mut self, now_us: u64, event: Event) {
        match event {
            Event::Call(client) => self.call(client, now_us),
            Event::Answer { is_admitted: true, .. } => self.conclude(now_us),
            Event::Answer { client, is_admitted: false } => self.back_off(client, now_us),
        }
    }

    fn call(&mut self, number: u32, now_us: u64) {
        self.outcome.calls += 1;
        self.outcome.calls_over_time.count(now_us);
        let is_admitted = self.bucket.take(&self.rate, Duration::from_micros(now_us)).is_ok();
        self.outcome.wasted += u64::from(!is_admitted);
        let Some(client) = self.clients.get_mut(number as usize) else { return };
        client.attempts = client.attempts.saturating_add(1);
        let hop_us = self.params.hop.draw_us(&mut client.rng);
        self.events.push_after(hop_us, Event::Answer { client: number, is_admitted });
    }

    fn back_off(&mut self, number: u32, now_us: u64) {
        let failure = self.failure();
        let Some(client) = self.clients.get_mut(number as usize) else { return };
        let so_far = so_far(client.attempts, now_us, client.last_delay_us);
        match self.strategy.next(&so_far, &failure, client.rng.roll()) {
            StrategyDecision::Wait(delay_us) => {
                client.last_delay_us = delay_us;
                self.outcome.delays.count(delay_us);
                let hop_us = self.params.hop.draw_us(&mut client.rng);
                self.events.push_after(delay_us.saturating_add(hop_us), Event::Call(number));
            }
            StrategyDecision::GiveUp(_) => {
                self.outcome.gave_up += 1;
                self.conclude(now_us);
            }
        }
    }

    fn failure(&self) -> Failure {
        let refused = Failure::new(Class::RateLimited);
        let is_told = self.params.honour && self.params.retry_after > Micros(0);
        if is_told { refused.with_retry_after(self.params.retry_after.duration()) } else { refused }
    }

    fn conclude(&mut self, now_us: u64) {
        self.waiting -= 1;
        self.outcome.time_us = now_us;
    }
}

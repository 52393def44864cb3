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

use holdoff_policy::{Class, Failure};
use serde::{Deserialize, Serialize};

use super::{Measured, so_far};
use crate::kernel::{Chance, EventQueue, Latency};
use crate::strategy::{Next, Strategy};
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
    pub(super) fn measured(self) -> Measured {
        Measured::new(self.time_us, self.calls, self.gave_up + self.unserved)
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
    chance: Chance,
    tries: u32,
    last_delay_us: u64,
}

/// A token bucket in millionths of a token, so that it needs no rounding.
struct Bucket {
    rate_per_sec: u64,
    full: u64,
    tokens: u64,
    filled_us: u64,
}

const TOKEN: u64 = 1_000_000;

impl Bucket {
    fn new(params: &Params) -> Self {
        let full = u64::from(params.burst) * TOKEN;
        Self { rate_per_sec: u64::from(params.rate_per_sec), full, tokens: full, filled_us: 0 }
    }

    fn admits(&mut self, now_us: u64) -> bool {
        let gained = (now_us - self.filled_us).saturating_mul(self.rate_per_sec);
        self.tokens = self.tokens.saturating_add(gained).min(self.full);
        self.filled_us = now_us;
        let Some(left) = self.tokens.checked_sub(TOKEN) else { return false };
        self.tokens = left;
        true
    }
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
    bucket: Bucket,
    /// Clients without a last answer.
    waiting: u64,
    outcome: Outcome,
}

impl<'a> Fleet<'a> {
    fn new(params: &'a Params, strategy: &'a Strategy, seed: u64) -> Self {
        let mut events = EventQueue::with_capacity(params.clients as usize);
        let start = |number| {
            let mut chance = Chance::of(seed, u64::from(number));
            events.push(params.hop.draw_us(&mut chance), Event::Call(number));
            Client { chance, tries: 0, last_delay_us: 0 }
        };
        let clients = (0..params.clients).map(start).collect();
        let (bucket, waiting) = (Bucket::new(params), u64::from(params.clients));
        Self { params, strategy, events, clients, bucket, waiting, outcome: Outcome::default() }
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
        let is_admitted = self.bucket.admits(now_us);
        self.outcome.wasted += u64::from(!is_admitted);
        let Some(client) = self.clients.get_mut(number as usize) else { return };
        client.tries = client.tries.saturating_add(1);
        let hop_us = self.params.hop.draw_us(&mut client.chance);
        self.events.push_after(hop_us, Event::Answer { client: number, is_admitted });
    }

    fn back_off(&mut self, number: u32, now_us: u64) {
        let failure = self.failure();
        let Some(client) = self.clients.get_mut(number as usize) else { return };
        let so_far = so_far(client.tries, now_us, client.last_delay_us);
        match self.strategy.next(&so_far, &failure, client.chance.roll()) {
            Next::Wait(delay_us) => {
                client.last_delay_us = delay_us;
                self.outcome.delays.count(delay_us);
                let hop_us = self.params.hop.draw_us(&mut client.chance);
                self.events.push_after(delay_us.saturating_add(hop_us), Event::Call(number));
            }
            Next::GiveUp(_) => {
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

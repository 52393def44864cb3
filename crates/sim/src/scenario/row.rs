//! One versioned row, many writers.
//!
//! The classic experiment on backoff. Each of N clients must update one row of a store once. A client reads the row and
//! its version, then writes on the condition that the version is unchanged. If another client was faster, the write is
//! refused: the client backs off as its strategy says, then reads again. Every message takes one hop, and its answer
//! another; the store itself takes no time. All clients start at time 0, when the first reads leave.
//!
//! The time of a run is the time of the last client's answer; its calls are the writes, failed ones included.
//!
//! A refused write may carry the number of contenders: the clients that have not succeeded yet, the refused one
//! included. A strategy without a contention rule ignores it. The count can be wrong by a factor, and stale by one
//! observation: then a client learns with its second refusal the count at its first, and has no count at its first.

use holdoff_policy::{Class, Failure};
use serde::{Deserialize, Serialize};

use super::{RunResult, so_far};
use crate::kernel::{EventQueue, Latency, SimRng};
use crate::strategy::{Strategy, StrategyDecision};
use crate::{Histogram, Series};

/// The parameters of the experiment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Params {
    /// The number of clients.
    pub clients: u32,
    /// The travel time of a message or an answer.
    pub hop: Latency,
    /// Whether a refused write carries the number of contenders.
    pub contenders_known: bool,
    /// The factor of the reported count; the report is always at least one contender.
    pub contenders_error: f64,
    /// Whether a client gets the count at its previous refusal.
    pub contenders_stale: bool,
}

impl Default for Params {
    /// A hundred clients, hops of |Normal(10, 2)| ms, and a correct count.
    fn default() -> Self {
        let hop = Latency::normal_ms(10, 2);
        Self { clients: 100, hop, contenders_known: true, contenders_error: 1.0, contenders_stale: false }
    }
}

/// The outcome of one run.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Outcome {
    /// The time of the last client's answer.
    pub time_us: u64,
    /// Writes, failed ones included.
    pub writes: u64,
    /// Reads.
    pub reads: u64,
    /// Clients that gave up.
    pub gave_up: u64,
    /// Reads and writes by the time they reached the store.
    pub calls_over_time: Series,
    /// The delays between a refusal and the next read.
    pub delays: Histogram,
    /// Events that the kernel handled.
    pub events: u64,
    /// The peak memory of clients and events, in bytes.
    pub peak_bytes: usize,
}

impl Outcome {
    pub(super) fn run_result(self) -> RunResult {
        RunResult::new(self.time_us, self.writes, self.gave_up)
            .figure("reads", self.reads)
            .figure("gave_up", self.gave_up)
            .plots(self.calls_over_time, self.delays)
    }
}

/// The arrival of a message at the store, or of its answer at the client.
#[derive(Clone, Copy, Debug)]
enum Arrival {
    Read(u32),
    ReadAnswer(u32),
    Write(u32),
    WriteAnswer(u32),
}

/// The state of a client. It fits into half a cache line, so that a million clients are cheap.
#[derive(Clone, Debug)]
struct Client {
    rng: SimRng,
    last_delay_us: u64,
    attempts: u32,
    /// The version read last.
    version: u32,
    /// The number of contenders when the last write was refused; 0 if it was not.
    contenders: u32,
    /// The same for the write before.
    contenders_before: u32,
}

struct Experiment<'a> {
    params: &'a Params,
    strategy: &'a Strategy,
    queue: EventQueue<Arrival>,
    clients: Vec<Client>,
    version: u32,
    contending: u32,
    outcome: Outcome,
}

/// Runs the experiment once.
pub fn run(params: &Params, strategy: &Strategy, seed: u64) -> Outcome {
    let mut experiment = Experiment::new(params, strategy, seed);
    experiment.start();
    while let Some((now_us, arrival)) = experiment.queue.pop() {
        experiment.outcome.events += 1;
        experiment.handle(now_us, arrival);
    }
    experiment.finish()
}

impl<'a> Experiment<'a> {
    fn new(params: &'a Params, strategy: &'a Strategy, seed: u64) -> Self {
        let client = |number| Client {
            rng: SimRng::of(seed, u64::from(number)),
            last_delay_us: 0,
            attempts: 0,
            version: 0,
            contenders: 0,
            contenders_before: 0,
        };
        let outcome = Outcome {
            time_us: 0,
            writes: 0,
            reads: 0,
            gave_up: 0,
            calls_over_time: Series::default(),
            delays: Histogram::default(),
            events: 0,
            peak_bytes: 0,
        };
        Self {
            params,
            strategy,
            queue: EventQueue::with_capacity(params.clients as usize),
            clients: (0..params.clients).map(client).collect(),
            version: 0,
            contending: params.clients,
            outcome,
        }
    }

    fn start(&mut self) {
        for number in 0..self.params.clients {
            self.travel(number, 0, Arrival::Read(number));
        }
    }

    fn finish(mut self) -> Outcome {
        // Neither grows after the start: a client has at most one pending event.
        self.outcome.peak_bytes = self.queue.bytes() + self.clients.capacity() * size_of::<Client>();
        self.outcome
    }

    fn handle(&mut self, now_us: u64, arrival: Arrival) {
        match arrival {
            Arrival::Read(number) => {
                self.outcome.reads += 1;
                self.outcome.calls_over_time.count(now_us);
                self.answer_read(number);
            }
            Arrival::ReadAnswer(number) => self.travel(number, 0, Arrival::Write(number)),
            Arrival::Write(number) => {
                self.outcome.writes += 1;
                self.outcome.calls_over_time.count(now_us);
                self.answer_write(number);
            }
            Arrival::WriteAnswer(number) => self.conclude(number, now_us),
        }
    }

    fn answer_read(&mut self, number: u32) {
        let Some(client) = self.clients.get_mut(number as usize) else { return };
        client.version = self.version;
        self.travel(number, 0, Arrival::ReadAnswer(number));
    }

    fn answer_write(&mut self, number: u32) {
        let Some(client) = self.clients.get_mut(number as usize) else { return };
        client.attempts = client.attempts.saturating_add(1);
        client.contenders_before = client.contenders;
        if client.version == self.version {
            self.version = self.version.wrapping_add(1);
            self.contending -= 1;
            client.contenders = 0;
        } else {
            client.contenders = self.contending;
        }
        self.travel(number, 0, Arrival::WriteAnswer(number));
    }

    /// Tells the client whether its write succeeded; if not, the client backs off.
    fn conclude(&mut self, number: u32, now_us: u64) {
        self.outcome.time_us = now_us;
        let Some(client) = self.clients.get_mut(number as usize) else { return };
        if client.contenders == 0 {
            return;
        }
        let failure =
            Failure::new(Class::Contended).with_contenders(reported_contenders(self.params, client));
        let so_far = so_far(client.attempts, now_us, client.last_delay_us);
        match self.strategy.next(&so_far, &failure, client.rng.roll()) {
            StrategyDecision::Wait(delay_us) => {
                client.last_delay_us = delay_us;
                self.outcome.delays.count(delay_us);
                self.travel(number, delay_us, Arrival::Read(number));
            }
            StrategyDecision::GiveUp(_) => {
                self.outcome.gave_up += 1;
                self.contending -= 1;
            }
        }
    }

    /// Sends a message after a delay; it arrives one hop later.
    fn travel(&mut self, number: u32, delay_us: u64, arrival: Arrival) {
        let Some(client) = self.clients.get_mut(number as usize) else { return };
        let hop_us = self.params.hop.draw_us(&mut client.rng);
        self.queue.push_after(delay_us.saturating_add(hop_us), arrival);
    }
}

/// Returns the number of contenders reported to this client; 0 if there is no report.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
fn reported_contenders(params: &Params, client: &Client) -> u32 {
    let contenders = if params.contenders_stale { client.contenders_before } else { client.contenders };
    if !params.contenders_known || contenders == 0 {
        return 0;
    }
    (f64::from(contenders) * params.contenders_error + 0.5).max(1.0) as u32
}

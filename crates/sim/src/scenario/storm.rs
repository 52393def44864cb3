//! A storm on one lock.
//!
//! N contenders on P processes want the same lock at the same time, as when an alert storm makes every
//! replica create the same task. The lock lives in a store: each call travels a hop, waits for one of the
//! store's workers, takes the request's cost, and its answer travels a hop back.
//!
//! A contender tries to acquire. Refused, it backs off as its strategy says and tries again, until its
//! patience or its tries are used up. Granted, it works for the hold time, then releases.
//!
//! Patience is looked at with every answer: one that comes when it is over, be it that the lock is granted
//! or that the work is done, counts as timed out, and a granted lock is released at once. Who was granted it
//! in time does the work, however late that is over.
//!
//! With the **probe** there is one piece of work for all: after each wait a contender first looks whether
//! somebody else has done it, and who acquires looks once more under the lock. Without it every contender
//! has work of its own, so that all must hold the lock in turn.
//!
//! Contenders of one process either each call the store, or **queue in front**: only the first of the
//! queue calls, and the next one's turn comes when it is answered.
//!
//! The run's time is that of the last contender's answer, be it a refusal; its calls are all calls to the
//! store. Peaks are counted where calls reach the store, within each millisecond.

mod contest;
mod store;

use serde::{Deserialize, Serialize};

use super::Measured;
use crate::kernel::Latency;
use crate::{Histogram, Micros, Series, Strategy};

/// The storm's parameters.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Params {
    /// How many contenders there are.
    pub clients: u32,
    /// On how many processes; at least one.
    pub processes: u32,
    /// Over how long the contenders arrive, evenly at random; zero lets all arrive at once.
    pub arrive_within: Micros,
    /// How long the work under the lock takes.
    pub hold: Micros,
    /// How long the store is busy with one call.
    pub request_cost: Micros,
    /// How many calls the store serves at the same time; at least one.
    pub store_workers: u32,
    /// How long a call or an answer travels.
    pub hop: Latency,
    /// Whether one contender's work serves all, and they look for it.
    pub probe: bool,
    /// Whether contenders of one process queue in front of the lock.
    pub queue_in_process: bool,
    /// How long a contender waits before it counts as timed out.
    pub patience: Micros,
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
            patience: Micros::from_secs(30),
        }
    }
}

/// What one run showed.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Outcome {
    /// When the last contender was answered.
    pub time_us: u64,
    /// Calls to the store, of every kind.
    pub calls: u64,
    /// The most calls that reached the store within one millisecond.
    pub peak_calls_per_ms: u64,
    /// The same without each contender's first call: the herd that the strategy is to blame for.
    pub peak_retries_per_ms: u64,
    /// How often the work was done.
    pub worked: u64,
    /// Contenders who found the work done by somebody else.
    pub found_done: u64,
    /// Contenders whose patience ended before they had what they wanted.
    pub timed_out: u64,
    /// Contenders whose tries were used up.
    pub exhausted: u64,
    /// Calls by the time they reached the store.
    pub calls_over_time: Series,
    /// The delays between tries.
    pub delays: Histogram,
    /// Events the kernel handled.
    pub events: u64,
}

impl Outcome {
    pub(super) fn measured(self) -> Measured {
        Measured::new(self.time_us, self.calls, self.timed_out + self.exhausted)
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
    contest::Contest::new(params, strategy, seed).run()
}

//! A storm on one lock.
//!
//! N contenders on P processes acquire the same lock at the same time, as when an alert storm makes every replica
//! create the same task. The lock lives in a store: each call travels a hop, waits for one of the store's workers,
//! takes the request's cost, and its answer travels a hop back.
//!
//! A contender tries to acquire the lock. If it is refused, it backs off as its strategy says and tries again, until
//! its timeout (`patience`) or its attempts are exhausted. If the lock is granted, it works for the hold time, then
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

mod contest;
mod store;

use serde::{Deserialize, Serialize};

use super::Measured;
use crate::kernel::Latency;
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

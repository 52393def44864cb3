//! Storms of equal signals. Each storm creates one task.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::operator::ApiClient;
use super::output::ProgressLog;
use super::plan::{Storm, storms};
use super::traffic::{Addresses, Service};

/// The operation that handles a signal.
pub(super) const ALERT: &str = "alert.page";
/// The delay in which an alert collects further signals.
const ALERT_DELAY: &str = "5s";

/// The number of senders, the signals of each, and the pause between two signals.
const SENDERS: usize = 8;
const SIGNALS_EACH: usize = 6;
const PAUSE: Duration = Duration::from_millis(150);

/// The maximum number of tasks with separate counts. Older tasks only add to the sum.
const MAX_TASKS: usize = 100;

/// The outcome of all signals.
#[derive(Debug, Default)]
pub(super) struct SignalCounts {
    pub(super) sent: u64,
    /// Signals without a response. Each of them may have been counted.
    pub(super) unsure: u64,
    /// The number of tasks that the signals created.
    pub(super) made: u64,
    /// The number of signals of each task, as last reported.
    tasks: BTreeMap<String, u64>,
    settled: u64,
}

impl SignalCounts {
    /// Records a response.
    pub(super) fn record(&mut self, answer: Result<(String, bool, u64), String>) {
        let Ok((task, is_new, occurrences)) = answer else {
            self.unsure += 1;
            return;
        };
        self.sent += 1;
        self.made += u64::from(is_new);
        let known = self.tasks.entry(task).or_default();
        *known = occurrences.max(*known);
        while self.tasks.len() > MAX_TASKS
            && let Some((_, occurrences)) = self.tasks.pop_first()
        {
            self.settled += occurrences;
        }
    }

    /// Returns the number of signals that the tasks represent.
    pub(super) fn counted(&self) -> u64 {
        self.settled + self.tasks.values().sum::<u64>()
    }
}

/// Sends signals. Clones share their counters. Dropping the future of `run` also aborts a storm that has begun.
#[derive(Clone)]
pub(super) struct StormSender {
    daemon: ApiClient,
    addresses: Addresses,
    signals: Arc<Mutex<SignalCounts>>,
    progress: ProgressLog,
}

impl StormSender {
    pub(super) fn new(daemon: ApiClient, addresses: Addresses, progress: ProgressLog) -> Self {
        Self { daemon, addresses, signals: Arc::default(), progress }
    }

    pub(super) fn signals(&self) -> MutexGuard<'_, SignalCounts> {
        self.signals.lock()
    }

    /// Runs all storms that begin before `until`, each to its end.
    pub(super) async fn run(self, since: Instant, until: Option<Duration>) {
        for storm in storms().take_while(|storm| until.is_none_or(|until| storm.at < until)) {
            tokio::time::sleep_until(since + storm.at).await;
            self.send_storm(storm).await;
        }
    }

    async fn send_storm(&self, storm: Storm) {
        let before = self.signals().sent;
        let mut senders = JoinSet::new();
        for _ in 0..SENDERS {
            let (storms, signal) = (self.clone(), self.signal(storm));
            senders.spawn(async move {
                for _ in 0..SIGNALS_EACH {
                    let answer =
                        storms.daemon.post("/v1/signals", &signal).await.and_then(|response| read(&response));
                    storms.signals().record(answer);
                    tokio::time::sleep(PAUSE).await;
                }
            });
        }
        senders.join_all().await;
        let sent = self.signals().sent - before;
        self.progress.print(&format!("sent {sent} alerts about db-{}, which create one task", storm.machine));
    }

    fn signal(&self, storm: Storm) -> Value {
        let machine = format!("db-{}", storm.machine);
        let body = json!({ "alert": "disk full", "machine": machine });
        json!({
            "fields": ["alert", "machine"],
            "data": body,
            "task": {
                "operation": ALERT,
                "http": { "url": self.addresses.url(Service::Pager, "pages"), "body": body },
                "delay": ALERT_DELAY,
            },
        })
    }
}

/// Returns the task, whether it is new, and the number of its signals.
fn read(response: &Value) -> Result<(String, bool, u64), String> {
    let read = || {
        let task = response.get("task")?.as_str()?.to_owned();
        Some((task, response.get("created")?.as_bool()?, response.get("occurrences")?.as_u64()?))
    };
    read().ok_or_else(|| format!("invalid response: {response}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_of_evicted_tasks_stay_in_the_sum() {
        let mut signals = SignalCounts::default();
        for task in 0..MAX_TASKS + 50 {
            // Responses can arrive out of order.
            for occurrences in [1, 3, 2] {
                signals.record(Ok((format!("{task:04}"), occurrences == 1, occurrences)));
            }
        }
        signals.record(Err("no answer".to_owned()));
        assert_eq!((signals.sent, signals.counted(), signals.made, signals.unsure), (450, 450, 150, 1));
        assert_eq!(signals.tasks.len(), MAX_TASKS);
    }
}

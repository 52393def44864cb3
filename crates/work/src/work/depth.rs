//! The approximate number of steps that wait in a queue: the last count, and the steps that this node has accepted
//! since.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use holdoff_policy::PolicySet;

use super::Work;
use crate::record::QueueStats;
use crate::store::Result;
use crate::{Error, Task, clock};

/// A count older than this is renewed before a submission is refused.
const FRESH: Duration = Duration::from_secs(5);

/// The range of the `retry_after` hint, in milliseconds, over which refused callers are spread.
const COME_BACK: (u64, u64) = (2_000, 10_000);

#[derive(Debug, Default)]
pub(crate) struct Depth(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    queues: BTreeMap<(String, String), u64>,
    counted: Option<Duration>,
}

impl Depth {
    fn counts(&self) -> std::sync::MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, namespace: &str, queue: &str) {
        let mut counts = self.counts();
        let key = (namespace.to_owned(), queue.to_owned());
        *counts.queues.entry(key).or_default() += 1;
    }

    pub(crate) fn learn(&self, stats: &[QueueStats]) {
        let mut queues = BTreeMap::new();
        for lane in stats {
            let waiting = lane.blocked + lane.due + lane.waiting + lane.running;
            *queues.entry((lane.namespace.clone(), lane.queue.clone())).or_default() += waiting;
        }
        *self.counts() = Counts { queues, counted: Some(clock::now()) };
    }

    fn of(&self, key: &(String, String)) -> u64 {
        self.counts().queues.get(key).copied().unwrap_or(0)
    }

    fn is_fresh(&self) -> bool {
        self.counts().counted.is_some_and(|counted| clock::now().saturating_sub(counted) < FRESH)
    }
}

fn add(wanted: &mut BTreeMap<(String, String), u64>, run: Option<((&str, &str), u64)>) {
    if let Some(((namespace, queue), count)) = run {
        *wanted.entry((namespace.to_owned(), queue.to_owned())).or_default() += count;
    }
}

impl Work {
    /// Refuses tasks whose queues are full.
    pub(super) async fn check_depth(&self, tasks: &[Task]) -> Result<()> {
        let limit = self.shared.settings.max_depth;
        let mut wanted: BTreeMap<(String, String), u64> = BTreeMap::new();
        let mut last: Option<((&str, &str), u64)> = None;
        for task in tasks {
            let namespace = task.namespace.as_deref().unwrap_or(PolicySet::DEFAULT_NAMESPACE);
            for step in &task.steps {
                let queue = step.queue.as_deref().unwrap_or(Task::DEFAULT_QUEUE);
                // The steps of a batch are mostly in the same queue: names are copied once for each run of them.
                match &mut last {
                    Some((key, count)) if *key == (namespace, queue) => *count += 1,
                    _ => add(&mut wanted, last.replace(((namespace, queue), 1))),
                }
            }
        }
        add(&mut wanted, last);
        let is_full = |(key, coming): &(&(String, String), &u64)| {
            self.shared.depth.of(key).saturating_add(**coming) > limit
        };
        if wanted.iter().any(|entry| is_full(&entry)) && !self.shared.depth.is_fresh() {
            let stats = self.count_anew().await?;
            self.shared.depth.learn(&stats);
        }
        let Some((key, _)) = wanted.iter().find(is_full) else { return Ok(()) };
        let (least, most) = COME_BACK;
        let wait = least + u64::from(clock::roll()) % (most - least);
        Err(Error::QueueFull {
            queue: key.1.clone(),
            depth: self.shared.depth.of(key),
            limit,
            retry_after: Duration::from_millis(wait),
        })
    }

    /// Stores the result of a count.
    pub(crate) fn learn_depth(&self, stats: &[QueueStats]) {
        self.shared.depth.learn(stats);
    }
}

//! The counts and the status of this node, and the background writer that adds them to the store.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use holdoff_policy::Class;
use parking_lot::Mutex;
use uuid::Uuid;

use super::counters::{Counters, SeparateNames};
use super::{NodeReport, StatsRow};
use crate::claimed_step::log_end;
use crate::store::{Report, RescuedStep, Result};
use crate::with_retry::{CALL_TIMEOUT, UPKEEP_TIMEOUT, within};
use crate::work::{Shared, Work};
use crate::{FailureReason, Lane, clock, process_name};

/// The interval between writes of the counts.
const WRITE_EVERY: Duration = Duration::from_secs(2);

/// The interval at which a node without new counts reports its status.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// The interval at which old counts and nodes are deleted.
const PRUNE_EVERY: Duration = Duration::from_secs(30);

/// The window over which finished runs are summed.
const MINUTE: Duration = Duration::from_secs(60);

/// The largest number of rows that are kept while the store cannot be reached; further rows are dropped.
const MAX_WAITING: usize = 2000;

/// A worker that runs steps.
pub(crate) trait WorkerLoad: Send + Sync + std::fmt::Debug {
    /// Returns the number of steps it runs.
    fn running(&self) -> usize;
    /// Returns the number of its slots.
    fn slots(&self) -> usize;
}

/// The counts of this node, and its workers.
#[derive(Debug)]
pub(crate) struct NodeStats {
    pub(crate) id: Uuid,
    counters: Mutex<Counters>,
    state: Mutex<NodeStatsState>,
    has_writer: AtomicBool,
    is_listed: AtomicBool,
    /// Held while counts are written to the store.
    pub(crate) turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct NodeStatsState {
    workers: Vec<Weak<dyn WorkerLoad>>,
    finished: VecDeque<(Duration, u64)>,
    names: SeparateNames,
    /// Rows that could not be written yet.
    waiting: Vec<StatsRow>,
}

impl Default for NodeStats {
    fn default() -> Self {
        Self {
            id: Uuid::now_v7(),
            counters: Mutex::default(),
            state: Mutex::default(),
            has_writer: AtomicBool::new(false),
            is_listed: AtomicBool::new(false),
            turn: tokio::sync::Mutex::default(),
        }
    }
}

impl NodeStats {
    /// Counts accepted steps, one for each lane given.
    pub(crate) fn submitted<'a>(&self, lanes: impl Iterator<Item = &'a Arc<Lane>>) {
        let mut counters = self.counters.lock();
        // The steps of a batch are mostly in the same lane.
        let mut run: Option<(&Arc<Lane>, u64)> = None;
        for lane in lanes {
            match &mut run {
                Some((same, count)) if Arc::ptr_eq(same, lane) => *count += 1,
                _ => {
                    if let Some((before, count)) = run.replace((lane, 1)) {
                        counters.submitted(before, count);
                    }
                }
            }
        }
        if let Some((last, count)) = run {
            counters.submitted(last, count);
        }
    }

    /// Returns true if no writer is active. The caller then becomes the writer.
    pub(crate) fn claim_writer(&self) -> bool {
        !self.has_writer.load(Ordering::Relaxed) && !self.has_writer.swap(true, Ordering::Relaxed)
    }

    /// Marks the writer as stopped.
    pub(crate) fn release_writer(&self) {
        self.has_writer.store(false, Ordering::Relaxed);
    }

    /// Makes this process appear in the list of nodes.
    pub(crate) fn list_node(&self) {
        self.is_listed.store(true, Ordering::Relaxed);
    }

    /// Removes this process from the list of nodes.
    pub(crate) fn unlist_node(&self) {
        self.is_listed.store(false, Ordering::Relaxed);
    }

    pub(crate) fn is_listed(&self) -> bool {
        self.is_listed.load(Ordering::Relaxed)
    }

    pub(crate) fn add_worker(&self, worker: Weak<dyn WorkerLoad>) {
        let mut state = self.state.lock();
        state.workers.retain(|worker| worker.strong_count() > 0);
        state.workers.push(worker);
    }

    /// Returns the numbers of running steps and of slots.
    pub(crate) fn load(&self) -> (u64, u64) {
        let workers: Vec<_> = self.state.lock().workers.iter().filter_map(Weak::upgrade).collect();
        workers.iter().fold((0, 0), |(running, slots), worker| {
            (running + worker.running() as u64, slots + worker.slots() as u64)
        })
    }

    /// Whether no worker is left in this process.
    pub(crate) fn is_idle(&self) -> bool {
        self.state.lock().workers.iter().all(|worker| worker.strong_count() == 0)
    }

    /// Takes the counts since the last call, and returns them with the number of runs that ended within the last
    /// minute.
    pub(crate) fn take(&self) -> (Vec<StatsRow>, u64) {
        let counters = std::mem::take(&mut *self.counters.lock());
        let now = clock::now();
        let mut state = self.state.lock();
        let runs = counters.runs();
        if runs > 0 {
            state.finished.push_back((now, runs));
        }
        while state.finished.front().is_some_and(|(at, _)| now.saturating_sub(*at) > MINUTE) {
            state.finished.pop_front();
        }
        let finished = state.finished.iter().map(|(_, count)| count).sum();
        let mut rows = std::mem::take(&mut state.waiting);
        rows.extend(state.names.fold(counters.rows(), now));
        (StatsRow::merged(rows), finished)
    }

    /// Returns rows that could not be written; the next write includes them.
    pub(crate) fn put_back(&self, mut rows: Vec<StatsRow>) {
        rows.truncate(MAX_WAITING);
        self.state.lock().waiting = rows;
    }
}

impl Work {
    /// Counts runs that have ended.
    pub(crate) fn count_finished<'a>(&self, ended: impl Iterator<Item = (&'a Arc<Lane>, &'a Report)>) {
        let mut counters = self.shared.node_stats.counters.lock();
        ended.for_each(|(lane, report)| counters.finished(lane, report));
        drop(counters);
        self.start_stats_writer();
    }

    /// Counts steps that were rescued from lost workers or have expired, and counts and logs those of them that failed
    /// finally, for this reason.
    pub(crate) fn count_rescued(&self, steps: &[RescuedStep], reason: FailureReason) {
        if steps.is_empty() {
            return;
        }
        let mut counters = self.shared.node_stats.counters.lock();
        for rescued in steps {
            let Some(known) = self.shared.names.cached_lane(rescued.lane) else { continue };
            counters.rescued(&known.lane, rescued.has_failed);
            if rescued.has_failed {
                let (class, reason) = (Class::Timeout.name(), reason.name());
                known.metrics.stopped(reason);
                let attempt = rescued.failures.saturating_add(1);
                log_end(&known.lane, rescued.step, attempt, class, reason, rescued.trace.as_deref());
            }
        }
        drop(counters);
        self.start_stats_writer();
    }

    /// Makes this node appear in the list of nodes.
    pub(crate) fn list_node(&self) {
        self.shared.node_stats.list_node();
        self.start_stats_writer();
    }

    /// Registers a worker of this node, and makes the node appear in the list.
    pub(crate) fn add_worker(&self, worker: Weak<dyn WorkerLoad>) {
        self.shared.node_stats.add_worker(worker);
        self.list_node();
    }

    /// Starts the background writer, unless it is running.
    pub(crate) fn start_stats_writer(&self) {
        if !self.shared.node_stats.claim_writer() {
            return;
        }
        let writer = StatsWriter(Arc::downgrade(&self.shared));
        // Outside of a runtime nothing can be written; the next count tries again to start the writer.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(run_stats_writer(writer));
        }
    }

    /// Writes the counts, and this node's status.
    async fn write_stats(&self, reports_node: bool) -> Result<()> {
        let Shared { node_stats, store, policies, .. } = &*self.shared;
        let _turn = node_stats.turn.lock().await;
        let (rows, finished) = node_stats.take();
        if rows.is_empty() && !reports_node {
            return Ok(());
        }
        let (running, slots) = node_stats.load();
        let node = node_stats.is_listed().then(|| NodeReport {
            id: node_stats.id,
            name: process_name(),
            version: env!("CARGO_PKG_VERSION"),
            policies: policies.current().id.to_string(),
            drift: policies.drift().map(|drift| drift.to_string()),
            running,
            slots,
            finished,
        });
        let written = within(CALL_TIMEOUT, store.add_stats(&rows, node.as_ref())).await;
        if written.is_err() {
            node_stats.put_back(rows);
        }
        written
    }

    /// Writes the remaining counts. If this node has no workers left, removes it from the list.
    pub(crate) async fn flush_stats(&self) {
        let Shared { node_stats, store, .. } = &*self.shared;
        let leaves = node_stats.is_idle();
        if leaves {
            node_stats.unlist_node();
        }
        let flushed = async {
            self.write_stats(!leaves).await?;
            if leaves { within(CALL_TIMEOUT, store.remove_node(node_stats.id)).await } else { Ok(()) }
        };
        if let Err(error) = flushed.await {
            tracing::debug!(%error, "failed to write the last statistics; they are lost");
        }
    }
}

/// The background writer. It is dropped when its runtime ends; then another may start.
struct StatsWriter(Weak<Shared>);

impl Drop for StatsWriter {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.node_stats.release_writer();
        }
    }
}

async fn run_stats_writer(writer: StatsWriter) {
    let (mut reported_at, mut pruned_at) = (None, clock::now());
    loop {
        // The writer holds only a weak reference between writes, so that it does not keep the store open.
        let Some(shared) = writer.0.upgrade() else { return };
        let work = Work { shared };
        let is_listed = work.shared.node_stats.is_listed();
        let is_due = |at| clock::now().saturating_sub(at) >= REPORT_EVERY;
        let reports_node = is_listed && reported_at.is_none_or(is_due);
        match work.write_stats(reports_node).await {
            Ok(()) if reports_node => reported_at = Some(clock::now()),
            Ok(()) => {}
            Err(error) => {
                tracing::debug!(%error, "failed to write statistics; they are kept for the next write");
            }
        }
        if is_listed && clock::now().saturating_sub(pruned_at) >= PRUNE_EVERY {
            pruned_at = clock::now();
            if let Err(error) = within(UPKEEP_TIMEOUT, work.shared.store.prune_stats()).await {
                tracing::debug!(%error, "failed to prune old statistics; the next run tries again");
            }
        }
        drop(work);
        tokio::time::sleep(WRITE_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    #[test]
    fn unwritten_rows_are_merged_into_the_next_write() {
        let (node_stats, name) = (NodeStats::default(), || "mail".to_owned());
        let lane =
            Lane { namespace: name(), queue: name(), operation: name(), kind: Kind::Handler, priority: 5 };
        let lane = Arc::new(lane);
        node_stats.submitted([&lane, &lane].into_iter());
        let (rows, _) = node_stats.take();
        node_stats.put_back(rows);
        node_stats.submitted([&lane].into_iter());
        let (rows, _) = node_stats.take();
        assert_eq!(rows.iter().map(|row| row.count).collect::<Vec<_>>(), [3]);
        assert!(node_stats.take().0.is_empty());
    }
}

//! The counts and the state of this node, until they are written to the store.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use uuid::Uuid;

use super::PulseRow;
use super::known::Known;
use super::tally::Tally;
use crate::{Lane, clock};

/// The window over which finished runs are summed.
const MINUTE: Duration = Duration::from_secs(60);

/// The largest number of rows that are kept while the store cannot be reached; further rows are dropped.
const MOST_WAITING: usize = 2000;

/// A worker that runs steps.
pub(crate) trait Busy: Send + Sync + std::fmt::Debug {
    /// Returns the number of steps it runs.
    fn running(&self) -> usize;
    /// Returns the number of its slots.
    fn places(&self) -> usize;
}

/// The counts of this node, and its workers.
#[derive(Debug)]
pub(crate) struct Heart {
    pub(crate) id: Uuid,
    tally: Mutex<Tally>,
    state: Mutex<State>,
    is_beating: AtomicBool,
    is_node: AtomicBool,
    /// Held while counts are written to the store.
    pub(crate) turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    workers: Vec<Weak<dyn Busy>>,
    finished: VecDeque<(Duration, u64)>,
    known: Known,
    /// Rows that could not be written yet.
    waiting: Vec<PulseRow>,
}

impl Default for Heart {
    fn default() -> Self {
        Self {
            id: Uuid::now_v7(),
            tally: Mutex::default(),
            state: Mutex::default(),
            is_beating: AtomicBool::new(false),
            is_node: AtomicBool::new(false),
            turn: tokio::sync::Mutex::default(),
        }
    }
}

impl Heart {
    /// Locks the counters, to count several events at once.
    pub(crate) fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts accepted steps, one for each lane given.
    pub(crate) fn submitted<'a>(&self, lanes: impl Iterator<Item = &'a Arc<Lane>>) {
        let mut tally = self.tally();
        // The steps of a batch are mostly in the same lane.
        let mut run: Option<(&Arc<Lane>, u64)> = None;
        for lane in lanes {
            match &mut run {
                Some((same, count)) if Arc::ptr_eq(same, lane) => *count += 1,
                _ => {
                    if let Some((before, count)) = run.replace((lane, 1)) {
                        tally.submitted(before, count);
                    }
                }
            }
        }
        if let Some((last, count)) = run {
            tally.submitted(last, count);
        }
    }

    /// Returns true if no writer is active. The caller then becomes the writer.
    pub(crate) fn begin(&self) -> bool {
        !self.is_beating.load(Ordering::Relaxed) && !self.is_beating.swap(true, Ordering::Relaxed)
    }

    /// Marks the writer as stopped.
    pub(crate) fn end(&self) {
        self.is_beating.store(false, Ordering::Relaxed);
    }

    /// Makes this process appear in the list of nodes.
    pub(crate) fn show(&self) {
        self.is_node.store(true, Ordering::Relaxed);
    }

    /// Removes this process from the list of nodes.
    pub(crate) fn hide(&self) {
        self.is_node.store(false, Ordering::Relaxed);
    }

    pub(crate) fn is_node(&self) -> bool {
        self.is_node.load(Ordering::Relaxed)
    }

    pub(crate) fn employ(&self, worker: Weak<dyn Busy>) {
        let mut state = self.state();
        state.workers.retain(|worker| worker.strong_count() > 0);
        state.workers.push(worker);
    }

    /// Returns the numbers of running steps and of slots.
    pub(crate) fn busy(&self) -> (u64, u64) {
        let workers: Vec<_> = self.state().workers.iter().filter_map(Weak::upgrade).collect();
        workers.iter().fold((0, 0), |(running, places), worker| {
            (running + worker.running() as u64, places + worker.places() as u64)
        })
    }

    /// Whether no worker is left in this process.
    pub(crate) fn is_idle(&self) -> bool {
        self.state().workers.iter().all(|worker| worker.strong_count() == 0)
    }

    /// Takes the counts since the last call, and returns them with the number of runs that ended within the last
    /// minute.
    pub(crate) fn take(&self) -> (Vec<PulseRow>, u64) {
        let tally = std::mem::take(&mut *self.tally());
        let now = clock::now();
        let mut state = self.state();
        let runs = tally.runs();
        if runs > 0 {
            state.finished.push_back((now, runs));
        }
        while state.finished.front().is_some_and(|(at, _)| now.saturating_sub(*at) > MINUTE) {
            state.finished.pop_front();
        }
        let finished = state.finished.iter().map(|(_, count)| count).sum();
        let mut rows = std::mem::take(&mut state.waiting);
        rows.extend(state.known.fold(tally.rows(), now));
        (PulseRow::merged(rows), finished)
    }

    /// Returns rows that could not be written; the next write includes them.
    pub(crate) fn put_back(&self, mut rows: Vec<PulseRow>) {
        rows.truncate(MOST_WAITING);
        self.state().waiting = rows;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    #[test]
    fn what_could_not_be_written_down_is_added_to_what_comes() {
        let (heart, name) = (Heart::default(), || "mail".to_owned());
        let lane =
            Lane { namespace: name(), queue: name(), operation: name(), kind: Kind::Handler, priority: 5 };
        let lane = Arc::new(lane);
        heart.submitted([&lane, &lane].into_iter());
        let (rows, _) = heart.take();
        heart.put_back(rows);
        heart.submitted([&lane].into_iter());
        let (rows, _) = heart.take();
        assert_eq!(rows.iter().map(|row| row.count).collect::<Vec<_>>(), [3]);
        assert!(heart.take().0.is_empty());
    }
}

//! What a node counts and says of itself, until it is written down.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use uuid::Uuid;

use super::PulseRow;
use super::known::Known;
use super::tally::Tally;
use crate::{Lane, clock};

/// Over which time finished runs are summed up.
const MINUTE: Duration = Duration::from_secs(60);

/// The most rows that wait for a store that cannot be reached; what is older is not counted then.
const MOST_WAITING: usize = 2000;

/// Somebody who runs steps.
pub(crate) trait Busy: Send + Sync + std::fmt::Debug {
    /// How many steps it has.
    fn running(&self) -> usize;
    /// How many it could have.
    fn places(&self) -> usize;
}

/// What a node counts, and what it knows of itself.
#[derive(Debug)]
pub(crate) struct Heart {
    pub(crate) id: Uuid,
    tally: Mutex<Tally>,
    state: Mutex<State>,
    is_beating: AtomicBool,
    is_node: AtomicBool,
    /// Whoever writes down has it.
    pub(crate) turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    workers: Vec<Weak<dyn Busy>>,
    finished: VecDeque<(Duration, u64)>,
    known: Known,
    /// What could not be written down yet.
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
    /// To count several things at once.
    pub(crate) fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One step after another was taken in.
    pub(crate) fn submitted<'a>(&self, lanes: impl Iterator<Item = &'a Arc<Lane>>) {
        let mut tally = self.tally();
        // Steps of one batch mostly go the same way.
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

    /// Whether nobody writes down yet; whoever is told so does from now on.
    pub(crate) fn begin(&self) -> bool {
        !self.is_beating.load(Ordering::Relaxed) && !self.is_beating.swap(true, Ordering::Relaxed)
    }

    /// Nobody writes down any more.
    pub(crate) fn end(&self) {
        self.is_beating.store(false, Ordering::Relaxed);
    }

    /// From now on others see this node.
    pub(crate) fn show(&self) {
        self.is_node.store(true, Ordering::Relaxed);
    }

    /// From now on they do not.
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

    /// Steps that run here, and places for them.
    pub(crate) fn busy(&self) -> (u64, u64) {
        let workers: Vec<_> = self.state().workers.iter().filter_map(Weak::upgrade).collect();
        workers.iter().fold((0, 0), |(running, places), worker| {
            (running + worker.running() as u64, places + worker.places() as u64)
        })
    }

    /// Whether no worker is left here.
    pub(crate) fn is_idle(&self) -> bool {
        self.state().workers.iter().all(|worker| worker.strong_count() == 0)
    }

    /// What was counted since this was asked last, and how many runs have ended within a minute.
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

    /// It could not be written down; the next time it is tried again.
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

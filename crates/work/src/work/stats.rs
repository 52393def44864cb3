//! How many steps are in which state. To count a million takes a while: then one counts for all, and not all the time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{Shared, Work};
use crate::clock;
use crate::patience::patiently;
use crate::record::QueueStats;
use crate::store::Result;

/// Up to so many steps are counted whenever somebody asks.
const FEW: u64 = 20_000;

/// Otherwise a count is good for so many times as long as it took; then somebody counts anew, and whoever asks meanwhile is told
/// what was counted last. Counting stays a small part of the load, however many ask.
const FRESH: u32 = 20;

/// A count is of no use any more after this, or after so many times as long as it took.
const USELESS_AFTER: Duration = Duration::from_secs(30);
const USELESS: u32 = 100;

#[derive(Debug, Default)]
pub(crate) struct Counts {
    latest: Mutex<Option<Arc<Counted>>>,
    /// Whoever counts has it.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Counted {
    stats: Vec<QueueStats>,
    at: Duration,
    took: Duration,
    is_large: bool,
}

impl Counted {
    fn new(stats: Vec<QueueStats>, begun: Duration) -> Self {
        let all = |lane: &QueueStats| {
            lane.blocked
                + lane.due
                + lane.waiting
                + lane.running
                + lane.failed
                + lane.conflicted
                + lane.succeeded
        };
        let is_large = stats.iter().map(all).sum::<u64>() > FEW;
        let at = clock::now();
        Self { stats, at, took: at.saturating_sub(begun), is_large }
    }

    fn age(&self) -> Duration {
        clock::now().saturating_sub(self.at)
    }

    fn is_fresh(&self) -> bool {
        self.is_large && self.age() < self.took * FRESH
    }

    fn is_useful(&self) -> bool {
        self.is_large && self.age() < USELESS_AFTER.max(self.took * USELESS)
    }
}

impl Counts {
    fn latest(&self) -> Option<Arc<Counted>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Work {
    /// How many steps are in which state, by queue and operation. Where there are very many, they were counted some seconds
    /// ago: about twenty times as long as it takes.
    pub async fn stats(&self) -> Result<Vec<QueueStats>> {
        match self.shared.counts.latest() {
            Some(latest) if latest.is_fresh() => Ok(latest.stats.clone()),
            Some(latest) if latest.is_useful() => {
                self.count_aside();
                Ok(latest.stats.clone())
            }
            _ => self.count_anew().await,
        }
    }

    /// Counts, or waits for somebody who begins to after this was asked.
    pub(crate) async fn count_anew(&self) -> Result<Vec<QueueStats>> {
        let Shared { counts, store, callers, settings, .. } = &*self.shared;
        let asked = clock::now();
        let _turn = counts.turn.lock().await;
        let begun = clock::now();
        if let Some(latest) = counts.latest().filter(|latest| latest.at.saturating_sub(latest.took) > asked) {
            return Ok(latest.stats.clone());
        }
        let stats = patiently(callers, |_| store.stats(settings.stale_after)).await?;
        let counted = Counted::new(stats.clone(), begun);
        *counts.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(counted));
        Ok(stats)
    }

    /// Has somebody count, unless somebody does.
    fn count_aside(&self) {
        let work = self.clone();
        if self.shared.counts.turn.try_lock().is_ok() {
            tokio::spawn(async move {
                if work.shared.counts.latest().is_some_and(|latest| latest.is_fresh()) {
                    return;
                }
                if let Err(error) = work.count_anew().await {
                    tracing::debug!(%error, "steps could not be counted; it is tried again");
                }
            });
        }
    }
}

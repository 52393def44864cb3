//! Numbers of steps by state. Counting a million steps takes time: then one caller counts for all, and not
//! continuously.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::{Shared, Work};
use crate::clock;
use crate::record::QueueStats;
use crate::store::Result;
use crate::with_retry::with_retry;

/// Up to this number of steps, every call counts.
const SMALL_STORE: u64 = 20_000;

/// Above that number, a result is reused for this many times the duration of the count. After that, a new count starts
/// in the background, and callers meanwhile get the last result. So counting stays a small part of the load, however
/// many callers there are.
const FRESH_FACTOR: u32 = 20;

/// A result is discarded after this time, or after this many times the duration of the count, whichever is longer.
const MIN_USEFUL: Duration = Duration::from_secs(30);
const USEFUL_FACTOR: u32 = 100;

#[derive(Debug, Default)]
pub(crate) struct StatsCache {
    latest: Mutex<Option<Arc<CachedStats>>>,
    /// Held while counting.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct CachedStats {
    stats: Vec<QueueStats>,
    at: Duration,
    took: Duration,
    is_large: bool,
}

impl CachedStats {
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
        let is_large = stats.iter().map(all).sum::<u64>() > SMALL_STORE;
        let at = clock::now();
        Self { stats, at, took: at.saturating_sub(begun), is_large }
    }

    fn age(&self) -> Duration {
        clock::now().saturating_sub(self.at)
    }

    fn is_fresh(&self) -> bool {
        self.is_large && self.age() < self.took * FRESH_FACTOR
    }

    fn is_useful(&self) -> bool {
        self.is_large && self.age() < MIN_USEFUL.max(self.took * USEFUL_FACTOR)
    }
}

impl StatsCache {
    fn latest(&self) -> Option<Arc<CachedStats>> {
        self.latest.lock().clone()
    }
}

impl Work {
    /// Returns the numbers of steps by state, for each queue and operation. Above 20 000 steps, a result is reused for
    /// about twenty times as long as counting took, which is some seconds. Cancel-safe.
    pub async fn stats(&self) -> Result<Vec<QueueStats>> {
        match self.shared.queue_stats.latest() {
            Some(latest) if latest.is_fresh() => Ok(latest.stats.clone()),
            Some(latest) if latest.is_useful() => {
                self.count_in_background();
                Ok(latest.stats.clone())
            }
            _ => self.count_now().await,
        }
    }

    /// Counts, or waits for a count that began after this call.
    pub(crate) async fn count_now(&self) -> Result<Vec<QueueStats>> {
        let Shared { queue_stats, store, call_policy, settings, .. } = &*self.shared;
        let asked = clock::now();
        let _turn = queue_stats.turn.lock().await;
        let begun = clock::now();
        if let Some(latest) =
            queue_stats.latest().filter(|latest| latest.at.saturating_sub(latest.took) > asked)
        {
            return Ok(latest.stats.clone());
        }
        let stats = with_retry(call_policy, |_| store.queue_stats(settings.stale_after)).await?;
        let counted = CachedStats::new(stats.clone(), begun);
        *queue_stats.latest.lock() = Some(Arc::new(counted));
        Ok(stats)
    }

    /// Starts a count in the background, unless one is running.
    fn count_in_background(&self) {
        let work = self.clone();
        if self.shared.queue_stats.turn.try_lock().is_ok() {
            tokio::spawn(async move {
                if work.shared.queue_stats.latest().is_some_and(|latest| latest.is_fresh()) {
                    return;
                }
                if let Err(error) = work.count_now().await {
                    tracing::debug!(%error, "failed to count steps; the next request counts again");
                }
            });
        }
    }
}

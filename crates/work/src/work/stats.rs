//! Numbers of steps by state. Counting a million steps takes time: then one caller counts for all, and not
//! continuously.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{Shared, Work};
use crate::clock;
use crate::patience::patiently;
use crate::record::QueueStats;
use crate::store::Result;

/// Up to this number of steps, every call counts.
const FEW: u64 = 20_000;

/// Above that number, a result is reused for this many times the duration of the count. After that, a new count starts
/// in the background, and callers meanwhile get the last result. So counting stays a small part of the load, however
/// many callers there are.
const FRESH: u32 = 20;

/// A result is discarded after this time, or after this many times the duration of the count, whichever is longer.
const USELESS_AFTER: Duration = Duration::from_secs(30);
const USELESS: u32 = 100;

#[derive(Debug, Default)]
pub(crate) struct Counts {
    latest: Mutex<Option<Arc<Counted>>>,
    /// Held while counting.
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
    /// Returns the numbers of steps by state, for each queue and operation. Above 20 000 steps, a result is reused for
    /// about twenty times as long as counting took, which is some seconds. Cancel-safe.
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

    /// Counts, or waits for a count that began after this call.
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

    /// Starts a count in the background, unless one is running.
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

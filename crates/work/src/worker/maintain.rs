//! Maintenance that any node does for the whole store: rescue, pruning, statistics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use crate::record::{FailureReason, QueueStats};
use crate::store::{RescueRule, Result};
use crate::with_retry::{CALL_TIMEOUT, UPKEEP_TIMEOUT, within};
use crate::{clock, metrics};

/// The maximum number of steps rescued in one transaction.
const BATCH: i64 = 1000;

/// The average interval between looks at the times of the upkeep.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The average interval between prunings of the history.
const PRUNE_EVERY: Duration = Duration::from_secs(60);

/// The minimum interval between counts of all steps. The interval is also at least `COUNT_SHARE` times as long as the
/// last count took, so that counting stays a small part of the load, however many steps there are.
const COUNT_EVERY: Duration = Duration::from_secs(10);
const COUNT_SHARE: u32 = 100;

pub(super) async fn maintain(shared: Arc<Shared>) {
    // A count or a pruning that hangs delays no rescue.
    tokio::join!(rescue_lost(&shared), keep_up(&shared));
}

async fn rescue_lost(shared: &Shared) {
    // The interval is random, between half and one and a half of `look_every`, so that nodes that start together do
    // not look together. An expired lease is thus found within three eighths of its length.
    let lease = shared.work.shared.settings.lease;
    let look_every = (lease / 4).min(Duration::from_secs(5));
    loop {
        tokio::select! {
            () = tokio::time::sleep(look_every / 2 + spread(look_every)) => {}
            () = shared.stopping.cancelled() => return,
        }
        report("rescue", rescue(shared).await);
    }
}

async fn keep_up(shared: &Shared) {
    let (mut prune_at, mut count_at) = (clock::now() + spread(PRUNE_EVERY), clock::now());
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY / 2 + spread(LOOK_EVERY)) => {}
            () = shared.stopping.cancelled() => return,
        }
        if clock::now() >= prune_at {
            tokio::select! {
                pruned = shared.work.prune() => report("pruning", pruned.map(drop)),
                () = shared.stopping.cancelled() => return,
            }
            prune_at = clock::now() + PRUNE_EVERY / 2 + spread(PRUNE_EVERY);
        }
        if clock::now() >= count_at {
            let before = clock::now();
            report("counting", count(shared).await);
            let took = clock::now().saturating_sub(before);
            count_at = clock::now() + COUNT_EVERY.max(took * COUNT_SHARE);
        }
    }
}

/// Draws a random time between zero and this time.
fn spread(time: Duration) -> Duration {
    let us = holdoff_policy::as_micros_u64(time);
    Duration::from_micros((u64::from(clock::roll()) * us.min(u64::from(u32::MAX))) >> 32)
}

fn report(what: &str, done: Result<()>) {
    if let Err(error) = done {
        tracing::warn!(%error, task = what, "failed to run maintenance; the next round tries again");
    }
}

async fn rescue(shared: &Shared) -> Result<()> {
    let work = &shared.work.shared;
    if shared.notifier.is_needed() {
        work.names.load_lanes(&*work.store).await?;
    }
    let rule = RescueRule {
        max_rescues: work.settings.max_rescues,
        least_delay: work.settings.requeue.rescue,
        limit: BATCH,
    };
    let notify = |ended: &crate::store::EndedStep| shared.notifier.notify(&work.names, ended);
    loop {
        let rescued = within(CALL_TIMEOUT, work.store.rescue(rule, &notify)).await?;
        let expired = within(CALL_TIMEOUT, work.store.expire(BATCH, &notify)).await?;
        let count = rescued.requeued + rescued.failed;
        if count > 0 {
            metrics::rescued(rescued.requeued, rescued.failed);
            tracing::warn!(
                requeued = rescued.requeued,
                failed = rescued.failed,
                "rescued steps of lost workers"
            );
        }
        if expired.failed > 0 {
            metrics::expired(expired.failed);
            tracing::warn!(
                steps = expired.failed,
                "failed steps that were not started by their start-by time"
            );
        }
        let mut steps = rescued.steps.iter().chain(&expired.steps);
        if steps.any(|step| work.names.cached_lane(step.lane).is_none()) {
            work.names.load_lanes(&*work.store).await?;
        }
        shared.work.count_rescued(&rescued.steps, FailureReason::TooManyRescues);
        shared.work.count_rescued(&expired.steps, FailureReason::Expired);
        if i64::try_from(count.max(expired.failed)).unwrap_or(0) < BATCH {
            return Ok(());
        }
    }
}

async fn count(shared: &Shared) -> Result<()> {
    let work = &shared.work.shared;
    let stats = shared.work.count_now().await?;
    let mut series: BTreeMap<[&str; 3], QueueStats> = BTreeMap::new();
    for lane in &stats {
        series.entry(work.names.labels(lane)).or_default().add(lane);
        if lane.stale > 0 {
            let (queue, operation, stale) = (&lane.queue, &lane.operation, lane.stale);
            tracing::warn!(queue, operation, stale, "found stale steps");
        }
    }
    for (labels, counts) in &series {
        metrics::counted(*labels, counts);
    }
    shared.work.update_depths(&stats);
    #[cfg(feature = "http")]
    if let Some(http) = &shared.http {
        metrics::broken(http.broken().len());
    }
    metrics::oldest_snapshot(within(UPKEEP_TIMEOUT, work.store.oldest_snapshot()).await?);
    Ok(())
}

//! A cache of names and their numbers. A lane or compiled policy never changes once it has a number.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use holdoff_policy::Compiled;
use parking_lot::RwLock;

use crate::metrics::LaneMetrics;
use crate::record::QueueStats;
use crate::store::{LaneId, LaneLimits, PolicyNumber, Result, Store};
use crate::{Error, Lane, PolicyError};

#[derive(Debug)]
pub(crate) struct NameCache {
    limits: LaneLimits,
    lanes: RwLock<CachedLanes>,
    compiled: RwLock<HashMap<PolicyNumber, Arc<Compiled>>>,
}

#[derive(Debug, Default)]
struct CachedLanes {
    ids: HashMap<Lane, LaneId>,
    known: HashMap<LaneId, Arc<KnownLane>>,
    counted: Labels,
}

/// The label values that metrics count separately: queues and operations, by namespace.
#[derive(Debug, Default)]
struct Labels {
    in_all: usize,
    namespaces: HashMap<String, HashSet<(String, String)>>,
}

/// A lane, and its metrics.
#[derive(Debug)]
pub(crate) struct KnownLane {
    pub(crate) lane: Arc<Lane>,
    pub(crate) metrics: LaneMetrics,
}

impl NameCache {
    pub(crate) fn with_limits(limits: LaneLimits) -> Self {
        Self { limits, lanes: RwLock::default(), compiled: RwLock::default() }
    }

    /// Returns the compiled policy of this number, whichever process stored it.
    pub(crate) async fn compiled(&self, store: &dyn Store, number: PolicyNumber) -> Result<Arc<Compiled>> {
        if let Some(compiled) = self.compiled.read().get(&number) {
            return Ok(Arc::clone(compiled));
        }
        let text = store.policy(number).await?.ok_or(PolicyError::Missing(number))?;
        let compiled: Compiled =
            serde_json::from_str(&text).map_err(|source| PolicyError::Unreadable { number, source })?;
        let compiled = Arc::new(compiled);
        self.compiled.write().insert(number, Arc::clone(&compiled));
        Ok(compiled)
    }

    /// Returns the numbers of these lanes. New lanes are created while the limits permit.
    pub(crate) async fn lane_ids(&self, store: &dyn Store, lanes: &[Lane]) -> Result<Vec<LaneId>> {
        self.lane_ids_within(store, lanes, self.limits).await
    }

    /// Returns the number of a lane for internal use, without regard to the limits.
    pub(crate) async fn internal_lane(&self, store: &dyn Store, lane: Lane) -> Result<LaneId> {
        let numbers = self.lane_ids_within(store, &[lane], LaneLimits::NONE).await?;
        Ok(numbers.first().copied().unwrap_or_default())
    }

    async fn lane_ids_within(
        &self,
        store: &dyn Store,
        lanes: &[Lane],
        limits: LaneLimits,
    ) -> Result<Vec<LaneId>> {
        let known: Vec<Option<LaneId>> = {
            let cache = self.lanes.read();
            lanes.iter().map(|lane| cache.ids.get(lane).copied()).collect()
        };
        let mut missing: Vec<Lane> =
            lanes.iter().zip(&known).filter(|(_, id)| id.is_none()).map(|(lane, _)| lane.clone()).collect();
        if missing.is_empty() {
            return Ok(known.into_iter().flatten().collect());
        }
        missing.sort();
        missing.dedup();
        let made = store.lane_ids(&missing, limits).await?;
        let mut cache = self.lanes.write();
        for (lane, id) in missing.into_iter().zip(made) {
            cache.insert(id, lane, self.limits);
        }
        Ok(lanes.iter().filter_map(|lane| cache.ids.get(lane).copied()).collect())
    }

    /// Returns the lane of this number, if it is in the cache.
    pub(crate) fn cached_lane(&self, id: LaneId) -> Option<Arc<KnownLane>> {
        self.lanes.read().known.get(&id).cloned()
    }

    /// Returns the lane of this number, and reads all lanes from the store if it is not in the cache.
    pub(crate) async fn lane(&self, store: &dyn Store, id: LaneId) -> Result<Arc<KnownLane>> {
        if let Some(lane) = self.cached_lane(id) {
            return Ok(lane);
        }
        self.load_lanes(store).await?;
        self.cached_lane(id).ok_or_else(|| {
            Error::NotPossible(format!("the store has no queue and operation with number {id}"))
        })
    }

    /// Whether metrics count this queue and operation under their own names.
    pub(crate) fn has_own_label(&self, stats: &QueueStats) -> bool {
        let QueueStats { namespace, queue, operation, .. } = stats;
        self.lanes.write().counted.admits(namespace, queue, operation, self.limits)
    }

    /// Reads every lane of the store into the cache.
    pub(crate) async fn load_lanes(&self, store: &dyn Store) -> Result<()> {
        let all = store.all_lanes().await?;
        let mut cache = self.lanes.write();
        for (id, lane) in all {
            cache.insert(id, lane, self.limits);
        }
        Ok(())
    }
}

impl CachedLanes {
    /// Adds a lane to the cache. Lanes beyond the limits, created by other processes, share one label in the metrics.
    fn insert(&mut self, id: LaneId, lane: Lane, limits: LaneLimits) {
        let Self { known, counted, .. } = self;
        known.entry(id).or_insert_with(|| {
            let has_own_label = counted.admits(&lane.namespace, &lane.queue, &lane.operation, limits);
            let metrics = if has_own_label { LaneMetrics::new(&lane) } else { LaneMetrics::other() };
            Arc::new(KnownLane { lane: Arc::new(lane.clone()), metrics })
        });
        self.ids.insert(lane, id);
    }
}

impl Labels {
    /// Whether this name is counted separately. A new name is added if the limits permit.
    fn admits(&mut self, namespace: &str, queue: &str, operation: &str, limits: LaneLimits) -> bool {
        let is_full = |count: usize, limit| u64::try_from(count).unwrap_or(u64::MAX) >= limit;
        let name = (queue.to_owned(), operation.to_owned());
        let names = self.namespaces.get(namespace);
        if names.is_some_and(|names| names.contains(&name)) {
            return true;
        }
        if is_full(self.in_all, limits.in_all) || is_full(names.map_or(0, HashSet::len), limits.in_namespace)
        {
            return false;
        }
        self.in_all += 1;
        self.namespaces.entry(namespace.to_owned()).or_default().insert(name)
    }
}

#[cfg(test)]
mod tests {
    use super::{Labels, LaneLimits};

    #[test]
    fn labels_beyond_the_limits_share_one() {
        let limits = LaneLimits { in_all: 3, in_namespace: 2 };
        let mut labels = Labels::default();
        assert!(labels.admits("a", "q", "1", limits) && labels.admits("a", "q", "2", limits));
        assert!(!labels.admits("a", "q", "3", limits), "the namespace has two");
        assert!(labels.admits("b", "q", "1", limits));
        assert!(!labels.admits("b", "q", "2", limits), "three lanes are admitted over all namespaces");
        assert!(labels.admits("a", "q", "2", limits), "an admitted lane stays admitted");
    }
}

//! A cache of names and their numbers. A lane or compiled policy never changes once it has a number.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use holdoff_policy::Compiled;
use parking_lot::{Mutex, RwLock};

use crate::metrics::{LaneMetrics, OTHER};
use crate::record::QueueStats;
use crate::store::{LaneId, LaneLimits, PolicyNumber, Result, Store};
use crate::{Error, Lane, PolicyError, clock};

/// The interval between two searches for lanes without steps, which read all steps.
const SEARCH_EVERY: Duration = Duration::from_secs(60 * 60);

#[derive(Debug)]
pub(crate) struct NameCache {
    limits: LaneLimits,
    /// When lanes without steps were last searched for.
    searched_at: Mutex<Option<Duration>>,
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
        let (searched_at, lanes, compiled) = (Mutex::default(), RwLock::default(), RwLock::default());
        Self { limits, searched_at, lanes, compiled }
    }

    /// Whether the last search for lanes without steps was long ago. The caller makes the next one.
    pub(crate) fn is_search_due(&self) -> bool {
        let mut searched_at = self.searched_at.lock();
        let is_due = searched_at.is_none_or(|at| clock::now().saturating_sub(at) >= SEARCH_EVERY);
        if is_due {
            *searched_at = Some(clock::now());
        }
        is_due
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

    /// Forgets the numbers of these lanes, because one of them was removed, and returns the lanes.
    pub(crate) async fn forget_lanes(
        &self,
        store: &dyn Store,
        numbers: &BTreeSet<LaneId>,
    ) -> Result<Vec<Lane>> {
        let mut lanes = Vec::with_capacity(numbers.len());
        for number in numbers {
            lanes.push((*self.lane(store, *number).await?.lane).clone());
        }
        self.lanes.write().ids.retain(|_, number| !numbers.contains(number));
        Ok(lanes)
    }

    /// Returns the namespace, queue and operation under which metrics count these steps.
    pub(crate) fn labels<'a>(&self, stats: &'a QueueStats) -> [&'a str; 3] {
        let QueueStats { namespace, queue, operation, .. } = stats;
        self.lanes.write().counted.of(namespace, queue, operation, self.limits)
    }

    /// Reads every lane of the store into the cache, and forgets those that were removed.
    pub(crate) async fn load_lanes(&self, store: &dyn Store) -> Result<()> {
        let all = store.all_lanes().await?;
        let stored: HashSet<LaneId> = all.iter().map(|(id, _)| *id).collect();
        let mut cache = self.lanes.write();
        cache.known.retain(|id, _| stored.contains(id));
        cache.ids.retain(|_, id| stored.contains(id));
        for (id, lane) in all {
            cache.insert(id, lane, self.limits);
        }
        Ok(())
    }
}

impl CachedLanes {
    /// Adds a lane to the cache.
    fn insert(&mut self, id: LaneId, lane: Lane, limits: LaneLimits) {
        let Self { known, counted, .. } = self;
        known.entry(id).or_insert_with(|| {
            let labels = counted.of(&lane.namespace, &lane.queue, &lane.operation, limits);
            Arc::new(KnownLane { lane: Arc::new(lane.clone()), metrics: LaneMetrics::new(labels) })
        });
        self.ids.insert(lane, id);
    }
}

impl Labels {
    /// Returns the label values for these names: the names themselves, as long as the limits permit. Further queues and
    /// operations of a namespace share one value, and so do further namespaces. A recorder never forgets a value, so names
    /// keep theirs when their lanes are removed.
    fn of<'a>(
        &mut self,
        namespace: &'a str,
        queue: &'a str,
        operation: &'a str,
        limits: LaneLimits,
    ) -> [&'a str; 3] {
        let is_full = |count: usize, limit| u64::try_from(count).unwrap_or(u64::MAX) >= limit;
        let name = (queue.to_owned(), operation.to_owned());
        let names = self.namespaces.get(namespace);
        if names.is_some_and(|names| names.contains(&name)) {
            return [namespace, queue, operation];
        }
        if is_full(self.in_all, limits.in_all) || is_full(names.map_or(0, HashSet::len), limits.in_namespace)
        {
            return [if names.is_some() { namespace } else { OTHER }, OTHER, OTHER];
        }
        self.in_all += 1;
        self.namespaces.entry(namespace.to_owned()).or_default().insert(name);
        [namespace, queue, operation]
    }
}

#[cfg(test)]
mod tests {
    use super::{Labels, LaneLimits};

    #[test]
    fn names_beyond_the_limits_share_one_label_in_each_namespace() {
        let limits = LaneLimits { in_all: 3, in_namespace: 2 };
        let mut labels = Labels::default();
        for (namespace, operation, expected) in [
            ("a", "1", ["a", "q", "1"]),
            ("a", "2", ["a", "q", "2"]),
            // The namespace has two.
            ("a", "3", ["a", "other", "other"]),
            ("b", "1", ["b", "q", "1"]),
            // There are three over all namespaces.
            ("b", "2", ["b", "other", "other"]),
            ("c", "1", ["other", "other", "other"]),
            ("a", "2", ["a", "q", "2"]),
        ] {
            assert_eq!(labels.of(namespace, "q", operation, limits), expected);
        }
    }
}

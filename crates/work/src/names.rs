//! Names and their numbers, remembered: lanes and compiled policies never change once they have a number.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use holdoff_policy::Compiled;

use crate::metrics::LaneMetrics;
use crate::store::{LaneId, PolicyNumber, Result, Store};
use crate::{Error, Lane};

#[derive(Debug, Default)]
pub(crate) struct Names {
    lanes: RwLock<Lanes>,
    compiled: RwLock<HashMap<PolicyNumber, Arc<Compiled>>>,
}

#[derive(Debug, Default)]
struct Lanes {
    ids: HashMap<Lane, LaneId>,
    known: HashMap<LaneId, Arc<KnownLane>>,
}

/// A lane, and what is counted about it.
#[derive(Debug)]
pub(crate) struct KnownLane {
    pub(crate) lane: Arc<Lane>,
    pub(crate) metrics: LaneMetrics,
}

impl Names {
    /// The compiled policy of this number, whoever published it.
    pub(crate) async fn compiled(&self, store: &dyn Store, number: PolicyNumber) -> Result<Arc<Compiled>> {
        if let Some(compiled) = read(&self.compiled).get(&number) {
            return Ok(Arc::clone(compiled));
        }
        let unusable = |why: String| {
            Error::Policies(format!("policy number {number} of the store cannot be used: {why}"))
        };
        let text = store.policy(number).await?.ok_or_else(|| unusable("it is not there".to_owned()))?;
        let compiled: Compiled = serde_json::from_str(&text).map_err(|error| unusable(error.to_string()))?;
        let compiled = Arc::new(compiled);
        write(&self.compiled).insert(number, Arc::clone(&compiled));
        Ok(compiled)
    }

    /// The numbers of these lanes.
    pub(crate) async fn lane_ids(&self, store: &dyn Store, lanes: &[Lane]) -> Result<Vec<LaneId>> {
        let known: Vec<Option<LaneId>> = {
            let cache = read(&self.lanes);
            lanes.iter().map(|lane| cache.ids.get(lane).copied()).collect()
        };
        let mut missing: Vec<Lane> =
            lanes.iter().zip(&known).filter(|(_, id)| id.is_none()).map(|(lane, _)| lane.clone()).collect();
        if missing.is_empty() {
            return Ok(known.into_iter().flatten().collect());
        }
        missing.sort();
        missing.dedup();
        let made = store.lanes(&missing).await?;
        let mut cache = write(&self.lanes);
        for (lane, id) in missing.into_iter().zip(made) {
            cache.learn(id, lane);
        }
        Ok(lanes.iter().filter_map(|lane| cache.ids.get(lane).copied()).collect())
    }

    /// The lane of this number, if it was ever seen here.
    pub(crate) fn seen_lane(&self, id: LaneId) -> Option<Arc<KnownLane>> {
        read(&self.lanes).known.get(&id).cloned()
    }

    /// The lane of this number.
    pub(crate) async fn lane(&self, store: &dyn Store, id: LaneId) -> Result<Arc<KnownLane>> {
        if let Some(lane) = self.seen_lane(id) {
            return Ok(lane);
        }
        self.learn_lanes(store).await?;
        self.seen_lane(id).ok_or_else(|| Error::NotPossible(format!("the store has no lane {id}")))
    }

    /// Learns of every lane there is.
    pub(crate) async fn learn_lanes(&self, store: &dyn Store) -> Result<()> {
        let all = store.all_lanes().await?;
        let mut cache = write(&self.lanes);
        for (id, lane) in all {
            cache.learn(id, lane);
        }
        Ok(())
    }
}

impl Lanes {
    fn learn(&mut self, id: LaneId, lane: Lane) {
        self.known.entry(id).or_insert_with(|| {
            let metrics = LaneMetrics::new(&lane);
            Arc::new(KnownLane { lane: Arc::new(lane.clone()), metrics })
        });
        self.ids.insert(lane, id);
    }
}

fn read<T>(lock: &RwLock<T>) -> std::sync::RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> std::sync::RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

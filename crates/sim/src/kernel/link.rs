//! Links and their faults.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Chance, Latency, NodeId, mix};
use crate::Micros;

/// The latency and the faults of a link, in one direction.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Link {
    /// The travel time of a message.
    pub latency: Latency,
    /// The share of messages that are lost.
    pub loss: f64,
    /// The share of messages that arrive twice.
    pub duplication: f64,
    /// The share of copies that are delayed, so that later ones may overtake them.
    pub delay: f64,
    /// The additional delay of such a copy.
    pub delayed_by: Latency,
}

impl Default for Link {
    /// Returns a link of five to fifteen milliseconds without faults.
    fn default() -> Self {
        let latency = Latency::Uniform { low: Micros::from_millis(5), high: Micros::from_millis(15) };
        let delayed_by = Latency::Exponential { mean: Micros::from_millis(50) };
        Self { latency, loss: 0.0, duplication: 0.0, delay: 0.0, delayed_by }
    }
}

/// The links between all nodes, and the cut ones among them.
#[derive(Clone, Debug)]
pub(super) struct Links {
    seed: u64,
    usual: Link,
    special: BTreeMap<(NodeId, NodeId), Link>,
    cut: BTreeSet<(NodeId, NodeId)>,
    traffic: BTreeMap<(NodeId, NodeId), Traffic>,
}

/// The traffic of one link so far.
#[derive(Clone, Debug)]
pub(super) struct Traffic {
    pub(super) chance: Chance,
    pub(super) sent: u64,
    pub(super) latest_delivered: u64,
}

impl Links {
    pub(super) fn new(seed: u64, usual: Link) -> Self {
        let (special, cut, traffic) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        Self { seed, usual, special, cut, traffic }
    }

    pub(super) fn set(&mut self, from: NodeId, to: NodeId, link: Link) {
        self.special.insert((from, to), link);
    }

    pub(super) fn link(&self, from: NodeId, to: NodeId) -> Link {
        self.special.get(&(from, to)).copied().unwrap_or(self.usual)
    }

    /// Returns the record of a link. Its random number stream is independent of every other link's.
    pub(super) fn traffic(&mut self, from: NodeId, to: NodeId) -> &mut Traffic {
        let seed = self.seed;
        self.traffic.entry((from, to)).or_insert_with(|| {
            let chance = Chance::of(mix(seed, u64::from(from) + 1), u64::from(to));
            Traffic { chance, sent: 0, latest_delivered: 0 }
        })
    }

    pub(super) fn cut(&mut self, from: NodeId, to: NodeId) {
        self.cut.insert((from, to));
    }

    pub(super) fn mend(&mut self, from: NodeId, to: NodeId) {
        self.cut.remove(&(from, to));
    }

    pub(super) fn heal(&mut self) {
        self.cut.clear();
    }

    pub(super) fn is_cut(&self, from: NodeId, to: NodeId) -> bool {
        self.cut.contains(&(from, to))
    }
}

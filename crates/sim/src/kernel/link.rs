//! Links between machines: latency, faults, and the counters of the faults that struck.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{NodeId, SimRng, mix};
use crate::Micros;

/// The latency and the faults of a link, in one direction.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinkModel {
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

impl Default for LinkModel {
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
    usual: LinkModel,
    special: BTreeMap<(NodeId, NodeId), LinkModel>,
    cut: BTreeSet<(NodeId, NodeId)>,
    traffic: BTreeMap<(NodeId, NodeId), Traffic>,
}

/// The traffic of one link so far.
#[derive(Clone, Debug)]
pub(super) struct Traffic {
    pub(super) rng: SimRng,
    pub(super) sent: u64,
    pub(super) latest_delivered: u64,
}

impl Links {
    pub(super) fn new(seed: u64, usual: LinkModel) -> Self {
        let (special, cut, traffic) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        Self { seed, usual, special, cut, traffic }
    }

    pub(super) fn set(&mut self, from: NodeId, to: NodeId, link: LinkModel) {
        self.special.insert((from, to), link);
    }

    pub(super) fn link(&self, from: NodeId, to: NodeId) -> LinkModel {
        self.special.get(&(from, to)).copied().unwrap_or(self.usual)
    }

    /// Returns the record of a link. Its random number stream is independent of every other link's.
    pub(super) fn traffic(&mut self, from: NodeId, to: NodeId) -> &mut Traffic {
        let seed = self.seed;
        self.traffic.entry((from, to)).or_insert_with(|| {
            let rng = SimRng::of(mix(seed, u64::from(from) + 1), u64::from(to));
            Traffic { rng, sent: 0, latest_delivered: 0 }
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

/// A distribution of durations: a network hop, or the service time of a request.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Latency {
    /// A constant duration.
    Constant(Micros),
    /// A uniform distribution between two durations.
    Uniform {
        /// The shortest duration.
        low: Micros,
        /// The longest duration.
        high: Micros,
    },
    /// The absolute value of a normal draw.
    Normal {
        /// The mean.
        mean: Micros,
        /// The standard deviation.
        sd: Micros,
    },
    /// An exponential (memoryless) distribution.
    Exponential {
        /// The mean.
        mean: Micros,
    },
}

impl Latency {
    /// Returns `|Normal(mean, sd)|` in milliseconds.
    pub const fn normal_ms(mean_ms: u64, sd_ms: u64) -> Self {
        Self::Normal { mean: Micros::from_millis(mean_ms), sd: Micros::from_millis(sd_ms) }
    }

    /// Returns whether every draw is zero.
    pub fn is_always_zero(&self) -> bool {
        let zero = Micros(0);
        match *self {
            Self::Constant(time) => time == zero,
            Self::Uniform { low, high } => low.max(high) == zero,
            Self::Normal { mean, sd } => mean.max(sd) == zero,
            Self::Exponential { mean } => mean == zero,
        }
    }

    /// Draws one duration, in whole microseconds.
    #[inline]
    pub fn draw_us(&self, rng: &mut SimRng) -> u64 {
        match *self {
            Self::Constant(time) => time.0,
            Self::Uniform { low, high } => rng.between(low.0, high.0),
            Self::Normal { mean, sd } => whole(rng.normal(mean.as_f64(), sd.as_f64()).abs()),
            Self::Exponential { mean } => whole(rng.exponential(mean.as_f64())),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative; the cast saturates"
)]
fn whole(us: f64) -> u64 {
    (us + 0.5) as u64
}

/// Counts the faults that struck, by kind.
///
/// A counter rises when a fault changes the course of the run, never when it merely might have. A run in which the
/// counter of a fault is zero proves nothing about that fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct FaultCounters {
    /// Messages sent, before any fault.
    pub sent: u64,
    /// Messages delivered to a node, copies included.
    pub delivered: u64,
    /// Messages lost on the way.
    pub lost: u64,
    /// Second copies that were sent along.
    pub duplicated: u64,
    /// Copies that were delayed on the way.
    pub delayed: u64,
    /// Copies delivered after a message that was sent later over the same link.
    pub reordered: u64,
    /// Copies dropped by a cut link, when sent or when due.
    pub partitioned: u64,
    /// Messages to a node that was down when they were sent.
    pub unreachable: u64,
    /// Copies addressed to an incarnation that was gone when they were due.
    pub outlived: u64,
    /// Timers of an incarnation that was gone when they were due.
    pub timers_outlived: u64,
    /// Nodes that crashed.
    pub crashed: u64,
    /// Nodes that restarted.
    pub restarted: u64,
    /// Times a node was given a skewed clock.
    pub skewed: u64,
    /// Machines that were suspended.
    pub suspended: u64,
    /// Copies that were due at a suspended machine, and were lost.
    pub slept_through: u64,
}

impl FaultCounters {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        let mut others = other.named().into_iter().map(|(_, count)| count);
        for count in self.counts_mut() {
            *count = count.saturating_add(others.next().unwrap_or(0));
        }
    }

    /// Returns every count with its name, in a fixed order.
    pub fn named(&self) -> [(&'static str, u64); 15] {
        [
            ("sent", self.sent),
            ("delivered", self.delivered),
            ("lost", self.lost),
            ("duplicated", self.duplicated),
            ("delayed", self.delayed),
            ("reordered", self.reordered),
            ("partitioned", self.partitioned),
            ("unreachable", self.unreachable),
            ("outlived", self.outlived),
            ("timers_outlived", self.timers_outlived),
            ("crashed", self.crashed),
            ("restarted", self.restarted),
            ("skewed", self.skewed),
            ("suspended", self.suspended),
            ("slept_through", self.slept_through),
        ]
    }

    /// Returns the counts in the order of [`named`](Self::named).
    fn counts_mut(&mut self) -> [&mut u64; 15] {
        [
            &mut self.sent,
            &mut self.delivered,
            &mut self.lost,
            &mut self.duplicated,
            &mut self.delayed,
            &mut self.reordered,
            &mut self.partitioned,
            &mut self.unreachable,
            &mut self.outlived,
            &mut self.timers_outlived,
            &mut self.crashed,
            &mut self.restarted,
            &mut self.skewed,
            &mut self.suspended,
            &mut self.slept_through,
        ]
    }
}

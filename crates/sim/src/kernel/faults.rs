//! The counters of faults that struck.

use serde::{Deserialize, Serialize};

/// Counts the faults that struck, by kind.
///
/// A counter rises when a fault changes the course of the run, never when it merely might have. A run in which the
/// counter of a fault is zero proves nothing about that fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Faults {
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
}

impl Faults {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        let mut others = other.named().into_iter().map(|(_, count)| count);
        for count in self.counts_mut() {
            *count = count.saturating_add(others.next().unwrap_or(0));
        }
    }

    /// Returns every count with its name, in a fixed order.
    pub fn named(&self) -> [(&'static str, u64); 13] {
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
        ]
    }

    /// Returns the counts in the order of [`named`](Self::named).
    fn counts_mut(&mut self) -> [&mut u64; 13] {
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
        ]
    }
}

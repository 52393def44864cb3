//! Durations and limits of gossip.

mod lint;
mod times;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use lint::Finding;
pub(crate) use times::Times;

/// The durations and limits of gossip. Values that are not set follow from the others.
///
/// ```
/// use std::time::Duration;
/// use holdoff_gossip::Settings;
///
/// let settings = Settings { round: Duration::from_millis(500), ..Settings::default() };
/// assert_eq!(settings.suspicion(), Duration::from_millis(4 * 500 + 6 * 50 + 50));
/// assert!(settings.lint().is_empty());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The interval at which the leader raises its heartbeat and every node checks its state.
    #[serde(with = "times::text")]
    pub round: Duration,
    /// The maximum number of hops that news travels.
    pub diameter: u32,
    /// The time that news takes for a hop.
    #[serde(with = "times::text")]
    pub dissemination: Duration,
    /// The maximum difference between clocks over a suspicion time, process pauses included.
    #[serde(with = "times::text")]
    pub clock_tolerance: Duration,
    /// The number of peers that a node sends news to.
    pub fan_out: u32,
    /// The time that a claim must stand before it is a hint, unless the leader's heartbeat rises. Default: the time
    /// that news takes to reach all nodes.
    #[serde(with = "times::optional_text", skip_serializing_if = "Option::is_none")]
    pub election: Option<Duration>,
    /// The time that a new node listens before it votes. Default: two rounds.
    #[serde(with = "times::optional_text", skip_serializing_if = "Option::is_none")]
    pub listening: Option<Duration>,
    /// The time without a heartbeat after which a voter suspects the leader. Default: four rounds, plus the time that
    /// news takes to reach all nodes, plus the clock tolerance.
    #[serde(with = "times::optional_text", skip_serializing_if = "Option::is_none")]
    pub suspicion: Option<Duration>,
    /// The time that a claim has to get a quorum, and before which its leader may not transfer leadership. Default:
    /// twice the suspicion time.
    #[serde(with = "times::optional_text", skip_serializing_if = "Option::is_none")]
    pub minimum_tenure: Option<Duration>,
    /// The number of rounds between two exchanges of arcs, if the nodes do not form a full mesh.
    pub exchange_rounds: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            round: Duration::from_millis(300),
            diameter: 6,
            dissemination: Duration::from_millis(50),
            clock_tolerance: Duration::from_millis(50),
            fan_out: 3,
            election: None,
            listening: None,
            suspicion: None,
            minimum_tenure: None,
            exchange_rounds: 20,
        }
    }
}

impl Settings {
    /// Returns the time that news takes to reach all nodes.
    pub fn across(&self) -> Duration {
        self.dissemination.saturating_mul(self.diameter)
    }

    /// Returns the time that a claim must stand before it is a hint.
    pub fn election(&self) -> Duration {
        self.election.unwrap_or(self.across())
    }

    /// Returns the time that a new node listens.
    pub fn listening(&self) -> Duration {
        self.listening.unwrap_or(self.round.saturating_mul(2))
    }

    /// Returns the time without a heartbeat after which a voter suspects the leader.
    pub fn suspicion(&self) -> Duration {
        let usual = self.round.saturating_mul(4).saturating_add(self.across());
        self.suspicion.unwrap_or(usual.saturating_add(self.clock_tolerance))
    }

    /// Returns the minimum tenure of a claim.
    pub fn minimum_tenure(&self) -> Duration {
        self.minimum_tenure.unwrap_or(self.suspicion().saturating_mul(2))
    }
}

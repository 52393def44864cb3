//! How long things take, and how long to wait for them.

mod lint;
mod times;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use lint::Finding;
pub(crate) use times::Times;

/// How long things take, and how long to wait for them. What is not set follows from the rest.
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
    /// How often the leader raises its heartbeat, and everybody looks at what it knows.
    #[serde(with = "times::text")]
    pub round: Duration,
    /// Over how many nodes news travels at most.
    pub diameter: u32,
    /// How long news takes from one node to the next.
    #[serde(with = "times::text")]
    pub dissemination: Duration,
    /// By how much clocks differ over a suspicion, pauses of a process included.
    #[serde(with = "times::text")]
    pub clock_tolerance: Duration,
    /// How many others each node tells what is new.
    pub fan_out: u32,
    /// How long a claim must stand before it is a hint, unless its leader's heart beats. Unless set, as long as news
    /// takes to all.
    #[serde(with = "times::optional_text", skip_serializing_if = "Option::is_none")]
    pub election: Option<Duration>,
    /// How long a new node listens before it votes. Unless set, two rounds.
    #[serde(with = "times::optional_text", skip_serializing_if = "Option::is_none")]
    pub listening: Option<Duration>,
    /// How long a heart may stand still. Unless set, four rounds, the time news takes to all, and the clocks' tolerance.
    #[serde(with = "times::optional_text", skip_serializing_if = "Option::is_none")]
    pub suspicion: Option<Duration>,
    /// How long a claim stands before its leader must have a quorum, and before it may hand over. Unless set, twice the
    /// suspicion.
    #[serde(with = "times::optional_text", skip_serializing_if = "Option::is_none")]
    pub minimum_tenure: Option<Duration>,
    /// After how many rounds some arcs are exchanged, where nodes do not know all others.
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
    /// How long news takes to all.
    pub fn across(&self) -> Duration {
        self.dissemination.saturating_mul(self.diameter)
    }

    /// How long a claim must stand before it is a hint.
    pub fn election(&self) -> Duration {
        self.election.unwrap_or(self.across())
    }

    /// How long a new node listens.
    pub fn listening(&self) -> Duration {
        self.listening.unwrap_or(self.round.saturating_mul(2))
    }

    /// How long a heart may stand still.
    pub fn suspicion(&self) -> Duration {
        let usual = self.round.saturating_mul(4).saturating_add(self.across());
        self.suspicion.unwrap_or(usual.saturating_add(self.clock_tolerance))
    }

    /// How long a claim stands at least.
    pub fn minimum_tenure(&self) -> Duration {
        self.minimum_tenure.unwrap_or(self.suspicion().saturating_mul(2))
    }
}

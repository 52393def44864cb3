//! Durations and limits of gossip, and the checks that they fit each other.

use std::fmt;
use std::time::Duration;

use holdoff_policy::{as_micros_u64, format_duration};
use serde::{Deserialize, Serialize};

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
    #[serde(with = "text")]
    pub round: Duration,
    /// The maximum number of hops that news travels.
    pub diameter: u32,
    /// The time that news takes for a hop.
    #[serde(with = "text")]
    pub dissemination: Duration,
    /// The maximum difference between clocks over a suspicion time, process pauses included.
    #[serde(with = "text")]
    pub clock_tolerance: Duration,
    /// The number of peers that a node sends news to.
    pub fan_out: u32,
    /// The time that a claim must stand before it is a hint, unless the leader's heartbeat rises. Default: the time
    /// that news takes to reach all nodes.
    #[serde(with = "optional_text", skip_serializing_if = "Option::is_none")]
    pub election: Option<Duration>,
    /// The time that a new node listens before it votes. Default: two rounds.
    #[serde(with = "optional_text", skip_serializing_if = "Option::is_none")]
    pub listening: Option<Duration>,
    /// The time without a heartbeat after which a voter suspects the leader. Default: four rounds, plus the time that
    /// news takes to reach all nodes, plus the clock tolerance.
    #[serde(with = "optional_text", skip_serializing_if = "Option::is_none")]
    pub suspicion: Option<Duration>,
    /// The time that a claim has to get a quorum, and before which its leader may not transfer leadership. Default:
    /// twice the suspicion time.
    #[serde(with = "optional_text", skip_serializing_if = "Option::is_none")]
    pub minimum_tenure: Option<Duration>,
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

/// A conflict between two settings, or a setting that is not usable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SettingsFinding {
    /// A stable code for this kind of finding.
    pub code: &'static str,
    /// The problem and the remedy.
    pub message: String,
}

impl fmt::Display for SettingsFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl Settings {
    /// Returns all findings, the most important first. Empty if all settings fit.
    pub fn lint(&self) -> Vec<SettingsFinding> {
        let mut findings = Vec::new();
        let mut find = |code, message| findings.push(SettingsFinding { code, message });
        let show = format_duration;
        let [round, across, suspicion] = [self.round, self.across(), self.suspicion()];
        if round < Duration::from_millis(10) {
            find(
                "round-too-short",
                format!("a round of {} floods the network; set round to 10ms or more", show(round)),
            );
        }
        if self.fan_out == 0 || self.diameter == 0 {
            find(
                "no-receivers",
                "with a fan_out or a diameter of 0 no message is spread; set both to 1 or more".into(),
            );
        }
        if suspicion < across {
            let (suspicion, across) = (show(suspicion), show(across));
            find(
                "suspicion-before-news",
                format!(
                    "a leader is suspected after {suspicion}, but its heartbeat takes {across} to reach all nodes: every \
                     leader will be suspected; raise suspicion, or lower diameter or dissemination"
                ),
            );
        } else if suspicion
            < round.saturating_mul(2).saturating_add(across).saturating_add(self.clock_tolerance)
        {
            find(
                "suspicion-after-one-loss",
                format!(
                    "with a suspicion of {} and rounds of {} one lost heartbeat makes a leader suspect; set suspicion to \
                     at least two rounds plus the time that news takes to reach all nodes ({}) plus clock_tolerance",
                    show(suspicion),
                    show(round),
                    show(across)
                ),
            );
        }
        if self.election() < across {
            find(
                "election-before-news",
                format!(
                    "a claim becomes a hint after {}, but a higher claim may take {} to arrive: hints will change; raise election",
                    show(self.election()),
                    show(across)
                ),
            );
        }
        if self.listening() < round {
            find(
                "votes-before-listening",
                format!(
                    "a new node listens for {}, less than the round of {} in which it would hear of a leader; raise \
                     listening",
                    show(self.listening()),
                    show(round)
                ),
            );
        }
        if self.minimum_tenure() < suspicion {
            find(
                "tenure-below-suspicion",
                format!(
                    "a leader has {} to get a quorum, less than the suspicion of {}; raise minimum_tenure",
                    show(self.minimum_tenure()),
                    show(suspicion)
                ),
            );
        }
        findings
    }
}

/// The settings in microseconds, with all defaults filled in.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_field_names, reason = "the unit stands last in each")]
pub(crate) struct Times {
    pub(crate) round_us: u64,
    pub(crate) election_us: u64,
    pub(crate) listening_us: u64,
    pub(crate) suspicion_us: u64,
    pub(crate) tenure_us: u64,
}

impl From<&Settings> for Times {
    fn from(settings: &Settings) -> Self {
        let us = as_micros_u64;
        Self {
            round_us: us(settings.round),
            election_us: us(settings.election()),
            listening_us: us(settings.listening()),
            suspicion_us: us(settings.suspicion()),
            tenure_us: us(settings.minimum_tenure()),
        }
    }
}

mod text {
    use std::time::Duration;

    use holdoff_policy::{format_duration, parse_duration};
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format_duration(*time))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        parse_duration(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

mod optional_text {
    use std::time::Duration;

    use serde::{Deserializer, Serializer};

    use super::text;

    #[expect(clippy::ref_option, reason = "serde calls it so")]
    pub(super) fn serialize<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => text::serialize(time, to),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        text::deserialize(from).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(settings: Settings) -> Vec<&'static str> {
        settings.lint().iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn conflicting_settings_are_reported() {
        let usual = Settings::default();
        let ms = Duration::from_millis;
        assert_eq!(codes(usual), [""; 0]);
        assert_eq!(codes(Settings { suspicion: Some(ms(200)), ..usual }), ["suspicion-before-news"]);
        assert_eq!(codes(Settings { suspicion: Some(ms(700)), ..usual }), ["suspicion-after-one-loss"]);
        assert_eq!(codes(Settings { election: Some(ms(100)), ..usual }), ["election-before-news"]);
        assert_eq!(codes(Settings { listening: Some(ms(100)), ..usual }), ["votes-before-listening"]);
        assert_eq!(codes(Settings { minimum_tenure: Some(ms(900)), ..usual }), ["tenure-below-suspicion"]);
        assert_eq!(codes(Settings { fan_out: 0, ..usual }), ["no-receivers"]);
        assert_eq!(codes(Settings { round: ms(1), ..usual }), ["round-too-short"]);
        let slow = Settings { suspicion: Some(ms(200)), ..usual }.lint().remove(0).to_string();
        assert!(
            slow.contains("suspected after 200ms, but its heartbeat takes 300ms to reach all nodes"),
            "{slow}"
        );
    }

    #[test]
    fn settings_are_read_from_toml() {
        let settings: Settings = toml::from_str("round = \"200ms\"\nsuspicion = \"2s\"\n").unwrap();
        assert_eq!(
            (settings.round, settings.suspicion),
            (Duration::from_millis(200), Some(Duration::from_secs(2)))
        );
        assert_eq!(settings.minimum_tenure(), Duration::from_secs(4));
        assert!(toml::from_str::<Settings>("rounds = \"200ms\"").is_err());
        assert!(toml::from_str::<Settings>("round = 200").is_err());
    }
}

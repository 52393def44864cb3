//! Checks that settings fit each other.

use std::fmt;
use std::time::Duration;

use holdoff_policy::format_duration;

use super::Settings;

/// A conflict between two settings, or a setting that is not usable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// A stable code for this kind of finding.
    pub code: &'static str,
    /// The problem and the remedy.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl Settings {
    /// Returns all findings, the most important first. Empty if all settings fit.
    pub fn lint(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut find = |code, message| findings.push(Finding { code, message });
        let show = format_duration;
        let [round, across, suspicion] = [self.round, self.across(), self.suspicion()];
        if round < Duration::from_millis(10) {
            find(
                "round-too-short",
                format!("a round of {} floods the network; take 10ms or more", show(round)),
            );
        }
        if self.fan_out == 0 || self.diameter == 0 {
            find(
                "nobody-told",
                "with a fan_out or a diameter of 0 nobody is told anything; take 1 or more".into(),
            );
        }
        if suspicion < across {
            let (suspicion, across) = (show(suspicion), show(across));
            find(
                "suspicion-before-news",
                format!(
                    "a leader is suspected after {suspicion}, but its heartbeat takes {across} to all: every leader \
                     will be suspected; raise suspicion, or lower diameter or dissemination"
                ),
            );
        } else if suspicion
            < round.saturating_mul(2).saturating_add(across).saturating_add(self.clock_tolerance)
        {
            find(
                "suspicion-after-one-loss",
                format!(
                    "with a suspicion of {} and rounds of {} one lost heartbeat makes a leader suspect; take at least \
                     two rounds, the time news takes to all ({}) and the clocks' tolerance together",
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
                    "a claim is a hint after {}, but a better one may take {}: hints will change; raise election",
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

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(settings: Settings) -> Vec<&'static str> {
        settings.lint().iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn it_says_what_does_not_fit() {
        let usual = Settings::default();
        let ms = Duration::from_millis;
        assert_eq!(codes(usual), [""; 0]);
        assert_eq!(codes(Settings { suspicion: Some(ms(200)), ..usual }), ["suspicion-before-news"]);
        assert_eq!(codes(Settings { suspicion: Some(ms(700)), ..usual }), ["suspicion-after-one-loss"]);
        assert_eq!(codes(Settings { election: Some(ms(100)), ..usual }), ["election-before-news"]);
        assert_eq!(codes(Settings { listening: Some(ms(100)), ..usual }), ["votes-before-listening"]);
        assert_eq!(codes(Settings { minimum_tenure: Some(ms(900)), ..usual }), ["tenure-below-suspicion"]);
        assert_eq!(codes(Settings { fan_out: 0, ..usual }), ["nobody-told"]);
        assert_eq!(codes(Settings { round: ms(1), ..usual }), ["round-too-short"]);
        let slow = Settings { suspicion: Some(ms(200)), ..usual }.lint().remove(0).to_string();
        assert!(slow.contains("suspected after 200ms, but its heartbeat takes 300ms to all"), "{slow}");
    }

    #[test]
    fn they_are_read_as_they_are_written() {
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

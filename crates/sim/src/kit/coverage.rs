//! The coverage of a simulation: in how many runs each event has occurred.

use std::collections::BTreeMap;
use std::fmt;

/// The number of runs below which no coverage is expected.
const MIN_RUNS: u64 = 50;

/// The number of runs in which each event has occurred, and the number of its occurrences.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Coverage {
    runs: u64,
    events: BTreeMap<&'static str, (u64, u64)>,
}

/// An event that has occurred in too few runs: they would show little.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooRare {
    event: &'static str,
    occurred: u64,
    runs: u64,
}

impl fmt::Display for TooRare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { event, occurred, runs } = self;
        write!(f, "{event} occurred in only {occurred} of {runs} runs")
    }
}

impl std::error::Error for TooRare {}

impl Coverage {
    /// Adds the events of a run.
    pub fn add(&mut self, events: impl IntoIterator<Item = (&'static str, u64)>) {
        self.runs += 1;
        for (event, times) in events {
            let (runs, all) = self.events.entry(event).or_default();
            *runs += u64::from(times > 0);
            *all += times;
        }
    }

    /// Returns the number of runs in which an event has occurred.
    pub fn runs_with(&self, event: &str) -> u64 {
        self.events.get(event).map_or(0, |(runs, _)| *runs)
    }

    /// Checks that each of these events has occurred in enough runs. Fifty runs are necessary for a meaningful share.
    pub fn check(
        &self,
        events: impl IntoIterator<Item = &'static str>,
        min_percent: u64,
    ) -> Result<(), TooRare> {
        for event in events {
            let (occurred, runs) = (self.runs_with(event), self.runs);
            if runs >= MIN_RUNS && occurred * 100 < runs * min_percent {
                return Err(TooRare { event, occurred, runs });
            }
        }
        Ok(())
    }

    /// Checks that each event has occurred in enough runs.
    pub fn check_all(&self, min_percent: u64) -> Result<(), TooRare> {
        self.check(self.events.keys().copied(), min_percent)
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} runs", self.runs)?;
        for (event, (runs, times)) in &self.events {
            writeln!(f, "{event:<24} in {:>3} % of them, {times} times", runs * 100 / self.runs.max(1))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rare_event_is_reported() {
        let mut coverage = Coverage::default();
        for run in 0..100_u64 {
            coverage.add([("crashed", run), ("torn", u64::from(run < 20))]);
        }
        assert_eq!((coverage.runs_with("crashed"), coverage.runs_with("wiped")), (99, 0));
        assert_eq!(coverage.check(["crashed"], 30), Ok(()));
        let rare = coverage.check_all(30).map_err(|rare| rare.to_string());
        assert_eq!(rare, Err("torn occurred in only 20 of 100 runs".to_owned()));
        assert!(coverage.to_string().contains("torn                     in  20 % of them, 20 times"));
    }
}

//! Counts of the faults by run. A fault that never strikes shows nothing.

use std::collections::BTreeMap;
use std::fmt;

use super::city::Ran;

/// The number of runs in which each fault struck, and its total number.
#[derive(Default)]
pub(super) struct Struck {
    runs: u64,
    faults: BTreeMap<&'static str, (u64, u64)>,
    totals: BTreeMap<&'static str, u64>,
}

impl Struck {
    pub(super) fn add(&mut self, ran: &Ran) {
        self.runs += 1;
        for (name, times) in &ran.faults {
            let (runs, all) = self.faults.entry(name).or_default();
            *runs += u64::from(*times > 0);
            *all += times;
        }
        for (name, number) in &ran.counts {
            *self.totals.entry(name).or_default() += number;
        }
    }

    pub(super) fn assert_each_in(&self, share: f64) {
        for (name, (runs, _)) in &self.faults {
            #[expect(clippy::cast_precision_loss, reason = "a share need not be exact")]
            let struck = *runs as f64 / self.runs as f64;
            assert!(struck >= share, "{name} struck in {struck:.2} of {} runs only", self.runs);
        }
    }
}

impl fmt::Display for Struck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} runs", self.runs)?;
        for (name, (runs, all)) in &self.faults {
            writeln!(f, "  {name:<22} in {:>3} % of them, {all} times", runs * 100 / self.runs)?;
        }
        for (name, number) in &self.totals {
            writeln!(f, "  {name:<22} {number}")?;
        }
        Ok(())
    }
}

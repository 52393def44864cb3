//! The summary of a run: its phases, its slowest tests, and the skipped tests.

use holdoff_testbed::KUBECONFIG_VARIABLE;

use super::catalogue::Catalogue;
use super::runner::{Outcome, Results};
use crate::run::now;

/// The number of slowest tests in the summary.
const SLOWEST: usize = 10;

/// Collects the content of the summary.
pub(super) struct Report {
    start: std::time::Instant,
    phases: Vec<(&'static str, f64, bool)>,
    skipped: Vec<String>,
    deep_only: usize,
    results: Results,
}

impl Report {
    pub(super) fn new() -> Self {
        let (phases, skipped) = (Vec::new(), Vec::new());
        Self { start: now(), phases, skipped, deep_only: 0, results: Results::default() }
    }

    /// Runs a phase and records its duration.
    pub(super) fn phase<T>(
        &mut self,
        name: &'static str,
        phase: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, String> {
        let start = now();
        let done = phase();
        self.phases.push((name, start.elapsed().as_secs_f64(), done.is_ok()));
        done
    }

    /// Reports a skipped part, now and in the summary.
    pub(super) fn skip(&mut self, what: &str, why: &str) {
        let line = format!("{what}: skipped: {why}");
        eprintln!("\n▶ {line}");
        self.skipped.push(line);
    }

    pub(super) fn left_out(&mut self, catalogue: &Catalogue) {
        self.deep_only = catalogue.deep_only;
        if catalogue.without_kubernetes > 0 {
            let what = format!("{} tests on a Kubernetes cluster", catalogue.without_kubernetes);
            self.skip(&what, &format!("${KUBECONFIG_VARIABLE} names none; they ran against the stand-in"));
        }
    }

    pub(super) fn add(&mut self, results: Results) {
        for done in &results.finished {
            if let Outcome::Skipped(why) = &done.outcome {
                self.skipped.push(format!("{}: skipped: {why}", done.name));
            }
        }
        self.results.finished.extend(results.finished);
    }

    /// Prints the number of passed runs of each test in a run with repetitions.
    pub(super) fn print_repetitions(&self) {
        eprintln!();
        self.results.print_repetitions();
    }

    pub(super) fn print(&self) {
        self.print_slowest();
        eprintln!("\nphases");
        for (name, seconds, is_done) in &self.phases {
            let mark = if *is_done { "" } else { "  FAILED" };
            eprintln!("  {seconds:>6.0} s  {name}{mark}");
        }
        eprintln!("  {:>6.0} s  in all", self.start.elapsed().as_secs_f64());
        for line in &self.skipped {
            eprintln!("  {line}");
        }
        if self.deep_only > 0 {
            eprintln!("  {} tests run only with `cargo xtask test --deep`", self.deep_only);
        }
        let count =
            |is: fn(&Outcome) -> bool| self.results.finished.iter().filter(|done| is(&done.outcome)).count();
        let passed = count(|outcome| *outcome == Outcome::Passed);
        let failed = count(|outcome| matches!(outcome, Outcome::Failed { .. }));
        let skipped = count(|outcome| matches!(outcome, Outcome::Skipped(_)));
        if !self.results.finished.is_empty() {
            println!("\n{passed} passed, {failed} failed, {skipped} skipped");
        }
    }

    fn print_slowest(&self) {
        let mut slowest: Vec<_> = self.results.finished.iter().collect();
        if slowest.len() <= 1 {
            return;
        }
        slowest.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        eprintln!("\nslowest tests\n     time processor");
        for done in slowest.iter().take(SLOWEST) {
            eprintln!("  {:>5.1} s {:>7.1} s  {}", done.seconds, done.processor_seconds, done.name);
        }
    }
}

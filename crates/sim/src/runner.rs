//! Runs a plan on several threads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;
use serde::Serialize;

use crate::kernel::mix;
use crate::scenario::duel::Ranks;
use crate::scenario::election::LeaderView;
use crate::scenario::{RunResult, Scenario};
use crate::{Histogram, Pooled, Series, Strategy, Summary};

/// A plan: every strategy with every number of clients, `runs` times each.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// The scenario; each of `clients` replaces its own number of clients.
    pub scenario: Scenario,
    /// The strategies to compare.
    pub strategies: Vec<Strategy>,
    /// The numbers of clients; each gives one row for each strategy.
    pub clients: Vec<u32>,
    /// The number of runs of a row.
    pub runs: u32,
    /// The seed of the random number generator.
    pub seed: u64,
    /// The number of threads. It affects only the elapsed time.
    pub threads: usize,
}

impl Plan {
    /// Returns the total number of runs.
    pub fn total_runs(&self) -> u64 {
        let rows = self.strategies.len() as u64 * self.clients.len() as u64;
        rows.saturating_mul(u64::from(self.runs))
    }
}

/// The results of one strategy with one number of clients.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct ResultRow {
    /// The name of the scenario.
    pub scenario: &'static str,
    /// The name of the strategy.
    pub policy: String,
    /// The number of clients.
    pub clients: u32,
    /// The number of runs.
    pub runs: u32,
    /// The scenario's time, in milliseconds.
    pub time_ms: Summary,
    /// The scenario's calls.
    pub calls: Summary,
    /// The number of clients that were not served; of an outage, the runs that did not recover.
    pub failed: Summary,
    /// The scenario's own figures.
    #[serde(flatten)]
    pub figures: BTreeMap<&'static str, Summary>,
    /// Calls over time, summed over all runs.
    pub calls_over_time: Series,
    /// The delays between attempts, summed over all runs.
    pub delays: Histogram,
    /// The finishing ranks of clients, by id; empty if the scenario does not record them.
    #[serde(skip_serializing_if = "Ranks::is_empty")]
    pub ranks: Ranks,
    /// Completed clients over time, summed over all runs; empty if the scenario does not record them.
    #[serde(skip_serializing_if = "Series::is_empty")]
    pub done_over_time: Series,
    /// Times of which each run has many, pooled over all runs; empty if there are none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub pooled: BTreeMap<&'static str, Pooled>,
    /// The nodes' views of the leader in the first run; empty if the scenario does not record them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub leader_views: Vec<LeaderView>,
}

/// Runs a plan. `progress` receives the number of finished runs and the total, from any thread.
///
/// Rows are ordered by number of clients, then by strategy, as the plan lists them. The seed of a run follows from the
/// plan's seed, the number of clients and the run's number, not from the strategy: every strategy meets the same
/// situations.
///
/// ```
/// use holdoff_sim::{Plan, Strategy, run, scenario::Scenario};
///
/// let plan = Plan {
///     scenario: Scenario::named("row").unwrap(),
///     strategies: vec![Strategy::named("full").unwrap(), Strategy::named("contention").unwrap()],
///     clients: vec![100],
///     runs: 20,
///     seed: 1,
///     threads: 2,
/// };
/// let rows = run(&plan, &|_done, _total| {});
/// assert!(rows[1].calls.mean < rows[0].calls.mean);
/// ```
pub fn run(plan: &Plan, progress: &(dyn Fn(usize, usize) + Sync)) -> Vec<ResultRow> {
    let tallies: Vec<RunCollector<'_>> = (plan.clients.iter())
        .flat_map(|clients| {
            plan.strategies.iter().map(|strategy| RunCollector::new(plan, *clients, strategy))
        })
        .collect();
    let runs = plan.runs as usize;
    let total = tallies.len() * runs;
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        loop {
            let job = next.fetch_add(1, Ordering::Relaxed);
            let Some(tally) = job.checked_div(runs).and_then(|row| tallies.get(row)) else { return };
            tally.run(job % runs);
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, total);
        }
    };
    thread::scope(|scope| {
        let others = plan.threads.clamp(1, total.max(1)) - 1;
        for _ in 0..others {
            scope.spawn(work);
        }
        work();
    });
    tallies.into_iter().map(RunCollector::into_row).collect()
}

/// A row under construction.
struct RunCollector<'a> {
    scenario: Scenario,
    strategy: &'a Strategy,
    seed: u64,
    collected: Mutex<Collected>,
}

/// The results so far. Commutative results are added up; the figures of each run are stored at the run's index.
struct Collected {
    runs: usize,
    /// One column of samples for each figure: the time, the calls, the failures, then the scenario's own figures.
    columns: Vec<(&'static str, Vec<f64>)>,
    calls_over_time: Series,
    delays: Histogram,
    ranks: Ranks,
    done_over_time: Series,
    pooled: BTreeMap<&'static str, Vec<u64>>,
    leader_views: Vec<LeaderView>,
}

impl Collected {
    fn new(runs: usize) -> Self {
        Self {
            runs,
            columns: Vec::new(),
            calls_over_time: Series::default(),
            delays: Histogram::default(),
            ranks: Ranks::default(),
            done_over_time: Series::default(),
            pooled: BTreeMap::new(),
            leader_views: Vec::new(),
        }
    }

    fn add(&mut self, number: usize, measured: &RunResult) {
        for (name, times_us) in &measured.pooled {
            self.pooled.entry(name).or_default().extend(times_us);
        }
        if number == 0 {
            self.leader_views.clone_from(&measured.leader_views);
        }
        self.calls_over_time.add(&measured.calls_over_time);
        self.delays.add(&measured.delays);
        self.ranks.add(&measured.ranks);
        self.done_over_time.add(&measured.done_over_time);
        let common = [
            (TIME, float(measured.time_us) / 1000.0),
            (CALLS, float(measured.calls)),
            (FAILED, float(measured.failed)),
        ];
        for (place, (name, value)) in common.iter().chain(&measured.figures).enumerate() {
            if self.columns.len() == place {
                self.columns.push((name, vec![0.0; self.runs]));
            }
            if let Some(sample) = self.columns.get_mut(place).and_then(|(_, samples)| samples.get_mut(number))
            {
                *sample = *value;
            }
        }
    }
}

const TIME: &str = "time_ms";
const CALLS: &str = "calls";
const FAILED: &str = "failed";

impl<'a> RunCollector<'a> {
    fn new(plan: &Plan, clients: u32, strategy: &'a Strategy) -> Self {
        Self {
            scenario: plan.scenario.clone().with_clients(clients),
            strategy,
            seed: mix(plan.seed, u64::from(clients)),
            collected: Mutex::new(Collected::new(plan.runs as usize)),
        }
    }

    fn run(&self, number: usize) {
        let measured = self.scenario.run(self.strategy, mix(self.seed, number as u64));
        self.collected.lock().add(number, &measured);
    }

    fn into_row(self) -> ResultRow {
        let Collected { runs, columns, calls_over_time, delays, ranks, done_over_time, pooled, leader_views } =
            self.collected.into_inner();
        let mut figures: BTreeMap<&'static str, Summary> =
            columns.iter().map(|(name, samples)| (*name, Summary::of(samples))).collect();
        ResultRow {
            scenario: self.scenario.name(),
            policy: self.strategy.name().to_owned(),
            clients: self.scenario.clients(),
            runs: u32::try_from(runs).unwrap_or(u32::MAX),
            time_ms: figures.remove(TIME).unwrap_or_default(),
            calls: figures.remove(CALLS).unwrap_or_default(),
            failed: figures.remove(FAILED).unwrap_or_default(),
            figures,
            calls_over_time,
            delays,
            ranks,
            done_over_time,
            pooled: pooled.into_iter().map(|(name, times_us)| (name, Pooled::of(times_us))).collect(),
            leader_views,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "times and counts of a simulation stay far below 2^52")]
fn float(count: u64) -> f64 {
    count as f64
}

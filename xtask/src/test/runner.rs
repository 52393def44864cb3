//! Runs tests concurrently, each in its own process.

mod process;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::catalogue::Depth;
use crate::run::{TaskResult, now, root};

/// Tests spend more time waiting than computing, so each core serves several.
const JOBS_PER_CORE: usize = 3;

/// The interval of the housekeeping.
const HOUSEKEEPING: Duration = Duration::from_secs(5);

/// A test to run.
#[derive(Clone)]
pub(super) struct Job {
    /// The binary's name and the test's.
    pub(super) name: String,
    /// The test's name in its binary.
    pub(super) test: String,
    pub(super) path: PathBuf,
    pub(super) folder: PathBuf,
    /// The duration of its last run, in seconds.
    pub(super) expected: Option<f64>,
}

impl Job {
    /// Returns the expected duration. Without a record, tests with real processes count as the longest.
    pub(super) fn expected_or_usual(&self) -> f64 {
        let usual = || match self.name.split(' ').nth(1) {
            Some("lib" | "bin") if !self.test.contains("simulation") => 0.1,
            _ if self.name.starts_with("holdoff-cli") => 10.0,
            _ => 2.0,
        };
        self.expected.unwrap_or_else(usual)
    }
}

/// The outcome of a test.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Passed,
    /// The test reported that it did not run, and the reason.
    Skipped(String),
    /// The test failed or did not end in time.
    Failed {
        why: String,
        output: String,
    },
}

/// A finished test.
pub(super) struct Finished {
    pub(super) name: String,
    pub(super) seconds: f64,
    /// Seconds of all processors together.
    pub(super) processor_seconds: f64,
    pub(super) outcome: Outcome,
}

/// All tests of a run.
#[derive(Default)]
pub(super) struct Results {
    pub(super) finished: Vec<Finished>,
}

/// Starts test processes.
pub(super) struct Runner {
    limit: Duration,
    environment: Vec<(String, String)>,
}

impl Runner {
    pub(super) fn new(depth: Depth, environment: Vec<(String, String)>) -> Self {
        let limit = match depth {
            Depth::Quick => Duration::from_secs(240),
            Depth::Deep => Duration::from_secs(1800),
        };
        Self { limit, environment }
    }

    /// Runs all jobs; calls `housekeeping` from time to time meanwhile.
    pub(super) fn run(&self, jobs: &[Job], housekeeping: impl Fn()) -> Result<Results, String> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let workers = (cores * JOBS_PER_CORE).min(jobs.len());
        eprintln!("\n▶ {} test runs, {workers} at a time", jobs.len());
        let (next, running, finished) =
            (AtomicUsize::new(0), AtomicUsize::new(workers), Mutex::new(Vec::new()));
        let progress = Progress::over(jobs);
        thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let done = self.finish(job);
                        progress.show(&done);
                        lock(&finished).push(done);
                    }
                    running.fetch_sub(1, Ordering::Relaxed);
                });
            }
            let mut last = now();
            while running.load(Ordering::Relaxed) > 0 {
                sleep(Duration::from_millis(100));
                if last.elapsed() > HOUSEKEEPING {
                    housekeeping();
                    last = now();
                }
            }
        });
        let finished = finished.into_inner().map_err(|_| "a worker panicked".to_owned())?;
        write_durations(&finished);
        Ok(Results { finished })
    }

    fn finish(&self, job: &Job) -> Finished {
        let start = now();
        let (outcome, processor_seconds) = process::run(job, &self.environment, self.limit);
        let seconds = start.elapsed().as_secs_f64();
        Finished { name: job.name.clone(), seconds, processor_seconds, outcome }
    }
}

#[expect(clippy::disallowed_methods, reason = "looks after other processes from time to time")]
fn sleep(pause: Duration) {
    thread::sleep(pause);
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A line for every binary when its last test has ended, and for every failure at once.
struct Progress {
    left: Mutex<BTreeMap<String, (usize, usize, f64)>>,
}

impl Progress {
    fn over(jobs: &[Job]) -> Self {
        let mut left: BTreeMap<String, (usize, usize, f64)> = BTreeMap::new();
        for job in jobs {
            let entry = left.entry(binary(&job.name)).or_default();
            entry.0 += 1;
            entry.1 += 1;
        }
        Self { left: left.into() }
    }

    fn show(&self, done: &Finished) {
        if let Outcome::Failed { why, .. } = &done.outcome {
            eprintln!("  FAILED {}: {why}", done.name);
        }
        if let Outcome::Skipped(why) = &done.outcome {
            eprintln!("  {}: skipped: {why}", done.name);
        }
        let (mut left, name) = (lock(&self.left), binary(&done.name));
        if let Some((all, open, seconds)) = left.get_mut(&name) {
            *open = open.saturating_sub(1);
            *seconds += done.seconds;
            if *open == 0 {
                eprintln!("  {name}: {all} runs, {seconds:.0} s if they had run one after the other");
            }
        }
    }
}

/// The binary's part of a test's name: its first two words.
fn binary(name: &str) -> String {
    name.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

impl Results {
    /// An error that counts the failures, if there are any.
    pub(super) fn outcome(&self) -> TaskResult {
        match self.failed().count() {
            0 => Ok(()),
            1 => Err("1 test failed".to_owned()),
            failed => Err(format!("{failed} tests failed")),
        }
    }

    fn failed(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.finished.iter().filter_map(|done| match &done.outcome {
            Outcome::Failed { why, output } => Some((done.name.as_str(), why.as_str(), output.as_str())),
            _ => None,
        })
    }

    /// Prints the output of every failed test, and the command that runs it alone.
    pub(super) fn print_failures(&self) {
        for (name, why, output) in self.failed() {
            eprintln!("\n──── {name}: {why}\n{output}\n     alone: cargo xtask test '{name}'");
        }
    }

    /// Prints the number of passed runs of each test, and its shortest and longest duration.
    pub(super) fn print_repetitions(&self) {
        let mut by_name: BTreeMap<&str, Vec<&Finished>> = BTreeMap::new();
        for done in &self.finished {
            by_name.entry(&done.name).or_default().push(done);
        }
        for (name, runs) in by_name {
            let passed = runs.iter().filter(|run| run.outcome == Outcome::Passed).count();
            let seconds = || runs.iter().map(|run| run.seconds);
            let (least, most) = (seconds().fold(f64::MAX, f64::min), seconds().fold(0.0, f64::max));
            eprintln!("  {passed} of {} runs passed, {least:.1} to {most:.1} s each: {name}", runs.len());
        }
    }
}

/// Processes that keep every core busy until the value is dropped.
pub(super) struct Load(Vec<Child>);

impl Load {
    pub(super) fn on_every_core() -> Result<Self, String> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let mut load = Self(Vec::new());
        for _ in 0..cores {
            let busy = Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn();
            load.0.push(busy.map_err(|error| format!("cannot start a busy process: {error}"))?);
        }
        Ok(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The durations of the last run, so that the next run starts the longest tests first. A line per test: seconds, seconds of all processors together, name.
const DURATIONS: &str = "target/test-durations.tsv";

/// Returns the seconds of each test, or nothing if there is no record yet.
pub(super) fn read_durations() -> BTreeMap<String, f64> {
    let text = std::fs::read_to_string(root().join(DURATIONS)).unwrap_or_default();
    let pair = |line: &str| {
        let mut columns = line.split('\t');
        let (seconds, _, name) = (columns.next()?, columns.next()?, columns.next()?);
        Some((name.to_owned(), seconds.parse().ok()?))
    };
    text.lines().filter_map(pair).collect()
}

/// Records the durations. The record only orders the next run, so a failure to write it is not an error.
fn write_durations(finished: &[Finished]) {
    let mut lines: BTreeMap<&str, String> = BTreeMap::new();
    let before = std::fs::read_to_string(root().join(DURATIONS)).unwrap_or_default();
    lines.extend(before.lines().filter_map(|line| Some((line.rsplit('\t').next()?, line.to_owned()))));
    for done in finished {
        let line = format!("{:.2}\t{:.2}\t{}", done.seconds, done.processor_seconds, done.name);
        lines.insert(&done.name, line);
    }
    let text = lines.values().fold(String::new(), |mut text, line| {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "{line}");
        text
    });
    let _ = std::fs::write(root().join(DURATIONS), text);
}

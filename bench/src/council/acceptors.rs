//! Three acceptors in separate processes, and the metrics that show whether one commit serves many requests.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdoff_council::acceptor::{AcceptorService, Settings};
use holdoff_council::runtime::PeerAddress;
use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

/// The argument that makes this program act as an acceptor.
const PART: &str = "as-acceptor";

/// Acceptors that stop with the benchmark.
pub(super) struct Acceptors {
    each: Vec<Acceptor>,
    _folder: TempDir,
}

struct Acceptor {
    process: Child,
    output: BufReader<ChildStdout>,
    address: PeerAddress,
}

impl Acceptors {
    pub(super) fn start() -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let acceptor = |name| Acceptor::start(&folder.path().join(name));
        let each = ["1", "2", "3"].map(acceptor).into_iter().collect::<Result<_, _>>()?;
        Ok(Self { each, _folder: folder })
    }

    pub(super) fn addresses(&self) -> Vec<PeerAddress> {
        self.each.iter().map(|acceptor| acceptor.address.clone()).collect()
    }

    /// Returns the counters of each acceptor.
    pub(super) fn counters(&mut self) -> Result<Vec<CommitCounters>, String> {
        self.each.iter_mut().map(Acceptor::counters).collect()
    }
}

impl Acceptor {
    /// Starts the acceptor and waits until it prints its key and address.
    fn start(folder: &Path) -> Result<Self, String> {
        let this = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(this);
        command.arg(PART).arg(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().map_err(|error| error.to_string())?;
        let output = process.stdout.take().ok_or("the pipe to the process is missing")?;
        let mut output = BufReader::new(output);
        let mut line = String::new();
        output.read_line(&mut line).map_err(|error| error.to_string())?;
        let address = line.trim_end().parse();
        let address = address.map_err(|error| format!("an acceptor did not print its address: {error}"))?;
        Ok(Self { process, output, address })
    }

    fn counters(&mut self) -> Result<CommitCounters, String> {
        let input = self.process.stdin.as_mut().ok_or("the pipe to the process is missing")?;
        input.write_all(b"counters\n").map_err(|error| error.to_string())?;
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(|error| error.to_string())?;
        serde_json::from_str(&line)
            .map_err(|error| format!("an acceptor did not print its counters: {error}"))
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Acts as an acceptor, if this process was started for that.
pub(super) fn play(arguments: &[String]) -> Option<ExitCode> {
    let [part, folder] = arguments else { return None };
    if part != PART {
        return None;
    }
    Some(match serve(Path::new(folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("council: failed to start an acceptor: {why}");
            ExitCode::FAILURE
        }
    })
}

/// Serves until the benchmark closes the pipe on which it requests the counters.
fn serve(folder: &Path) -> Result<(), String> {
    let recorder = CommitRecorder::default();
    metrics::set_global_recorder(recorder.clone()).map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let mut settings = Settings::default();
    settings.listen.set_port(0);
    let service = runtime.block_on(AcceptorService::start(folder, &settings));
    let service = service.map_err(|error| error.to_string())?;
    println!("{}", PeerAddress { key: service.key(), address: service.address().to_string() });
    for line in std::io::stdin().lines() {
        line.map_err(|error| error.to_string())?;
        println!("{}", serde_json::json!(recorder.counters()));
    }
    Ok(())
}

/// The number of an acceptor's disk commits and of the requests they served.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct CommitCounters {
    /// The number of answered requests.
    pub(super) requests: u64,
    /// The number of batches.
    pub(super) batches: u64,
    /// The number of commits that waited for the disk.
    pub(super) commits: u64,
    /// The total duration of these commits.
    pub(super) commit_us: u64,
}

impl CommitCounters {
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            requests: self.requests - before.requests,
            batches: self.batches - before.batches,
            commits: self.commits - before.commits,
            commit_us: self.commit_us - before.commit_us,
        }
    }
}

/// Records these metrics, and ignores all others.
#[derive(Clone, Default)]
pub(super) struct CommitRecorder {
    requests: Arc<SampleSum>,
    commits: Arc<SampleSum>,
}

/// The number of values, and their sum in millionths.
#[derive(Default)]
struct SampleSum {
    count: AtomicU64,
    millionths: AtomicU64,
}

impl CommitRecorder {
    pub(super) fn counters(&self) -> CommitCounters {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        CommitCounters {
            requests: read(&self.requests.millionths) / 1_000_000,
            batches: read(&self.requests.count),
            commits: read(&self.commits.count),
            commit_us: read(&self.commits.millionths),
        }
    }
}

impl HistogramFn for SampleSum {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and positive")]
    fn record(&self, value: f64) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.millionths.fetch_add((value * 1e6) as u64, Ordering::Relaxed);
    }
}

impl Recorder for CommitRecorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        match key.name() {
            "holdoff_acceptor_batch_requests" => Histogram::from_arc(self.requests.clone()),
            "holdoff_acceptor_commit_seconds" => Histogram::from_arc(self.commits.clone()),
            _ => Histogram::noop(),
        }
    }
}

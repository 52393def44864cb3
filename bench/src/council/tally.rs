//! The metrics of an acceptor that show whether one commit serves many requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use serde::{Deserialize, Serialize};

/// The number of an acceptor's disk commits and of the requests they served.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Tally {
    /// The number of answered requests.
    pub(super) asks: u64,
    /// The number of batches.
    pub(super) batches: u64,
    /// The number of commits that waited for the disk.
    pub(super) commits: u64,
    /// The total duration of these commits.
    pub(super) commit_us: u64,
}

impl Tally {
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            asks: self.asks - before.asks,
            batches: self.batches - before.batches,
            commits: self.commits - before.commits,
            commit_us: self.commit_us - before.commit_us,
        }
    }
}

/// Records these metrics, and ignores all others.
#[derive(Clone, Default)]
pub(super) struct Counting {
    asked: Arc<Sum>,
    committed: Arc<Sum>,
}

/// The number of values, and their sum in millionths.
#[derive(Default)]
struct Sum {
    many: AtomicU64,
    millionths: AtomicU64,
}

impl Counting {
    pub(super) fn tally(&self) -> Tally {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Tally {
            asks: read(&self.asked.millionths) / 1_000_000,
            batches: read(&self.asked.many),
            commits: read(&self.committed.many),
            commit_us: read(&self.committed.millionths),
        }
    }
}

impl HistogramFn for Sum {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and positive")]
    fn record(&self, value: f64) {
        self.many.fetch_add(1, Ordering::Relaxed);
        self.millionths.fetch_add((value * 1e6) as u64, Ordering::Relaxed);
    }
}

impl Recorder for Counting {
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
            "holdoff_acceptor_batch_asks" => Histogram::from_arc(self.asked.clone()),
            "holdoff_acceptor_commit_seconds" => Histogram::from_arc(self.committed.clone()),
            _ => Histogram::noop(),
        }
    }
}

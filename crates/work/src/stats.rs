//! Recent activity, over all nodes, for dashboards.
//!
//! Every node counts in memory the steps that are accepted and those that leave `running`, and adds its counts to small
//! rows in the store every two seconds. A row is keyed by the namespace and one further property, so that the number of
//! rows stays small, however many combinations of properties occur.

mod counters;
mod node;

use std::collections::BTreeMap;
use std::time::Duration;

use holdoff_policy::as_micros_i64;

pub(crate) use node::{NodeStats, WorkerLoad};

use crate::Moment;
use crate::engine::columns::{BreakdownColumns, BucketColumns, count};

/// The recent activity of a store, over all its nodes.
#[derive(Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct StatsWindow {
    /// The store's clock at the time of the read.
    pub now: Moment,
    /// The duration that each bucket covers.
    pub width: Duration,
    /// The buckets, the oldest first, without gaps.
    pub buckets: Vec<StatsBucket>,
    /// Failures by class, the most frequent first.
    pub classes: Vec<(String, u64)>,
    /// Failures that were granted another attempt, by the number of the failed attempt; 10 stands for all later ones.
    pub attempts: Vec<(u32, u64)>,
    /// Operations, those with the most failures first.
    pub operations: Vec<FailureStats>,
    /// Hosts that HTTP steps call, those with the most failures first.
    pub destinations: Vec<FailureStats>,
}

/// The activity within one bucket of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct StatsBucket {
    /// The start of the bucket.
    pub at: Moment,
    /// Steps that were accepted.
    pub submitted: u64,
    /// Steps that succeeded.
    pub succeeded: u64,
    /// Runs that failed, and were granted another attempt.
    pub retried: u64,
    /// Steps that failed finally.
    pub failed: u64,
    /// Steps that became `conflicted` and wait for an operator's decision.
    pub conflicted: u64,
    /// Runs that ended without a failure: snoozed, shut down, at a limit, rescued.
    pub other: u64,
}

/// The successes and failures of an operation or a destination.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct FailureStats {
    /// The namespace.
    pub namespace: String,
    /// The operation, or the host.
    pub name: String,
    /// Runs that failed, whether or not they were granted another attempt.
    pub failures: u64,
    /// Runs that succeeded.
    pub successes: u64,
    /// The class of the last failure.
    pub last_class: Option<String>,
}

/// The kind of a count. The numbers are stored, and never change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum StatsKind {
    Steps = 0,
    Class = 1,
    Attempt = 2,
    Operation = 3,
    Destination = 4,
}

impl StatsKind {
    const ALL: [Self; 5] = [Self::Steps, Self::Class, Self::Attempt, Self::Operation, Self::Destination];

    /// Returns the kind with this number.
    fn of_code(code: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as i16 == code)
    }
}

/// A count to add to the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StatsRow {
    pub(crate) kind: StatsKind,
    pub(crate) namespace: String,
    /// The class, the attempt, the operation or the destination.
    pub(crate) name: String,
    pub(crate) outcome: i16,
    pub(crate) count: u64,
    /// The class of the last failure.
    pub(crate) class: Option<String>,
}

impl StatsRow {
    /// The outcome of a step that was accepted. The others are those of [`AttemptOutcome`](crate::store::AttemptOutcome).
    pub(crate) const SUBMITTED: i16 = 100;
    /// The outcomes of an operation or a destination.
    pub(crate) const SUCCESS: i16 = 0;
    pub(crate) const FAILURE: i16 = 1;

    /// Returns the rows with each key once, in an order that is the same on all nodes.
    fn merged(rows: Vec<Self>) -> Vec<Self> {
        let mut merged: BTreeMap<_, Self> = BTreeMap::new();
        for row in rows {
            let key = (row.kind, row.namespace.clone(), row.name.clone(), row.outcome);
            match merged.get_mut(&key) {
                Some(sum) => {
                    sum.count += row.count;
                    sum.class = row.class.or(sum.class.take());
                }
                None => drop(merged.insert(key, row)),
            }
        }
        merged.into_values().collect()
    }
}

/// A resolution of time, and how long counts are kept at it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Resolution {
    pub(crate) number: i16,
    /// The bucket width of steps by outcome.
    pub(crate) bucket_width: Duration,
    /// The bucket width of all other counts, which have more rows.
    pub(crate) breakdown_width: Duration,
    pub(crate) retention: Duration,
}

impl Resolution {
    pub(crate) const ALL: [Self; 2] = [Self::new(0, 5, 60, 15 * 60), Self::new(1, 60, 900, 24 * 3600)];

    const fn new(number: i16, bucket_s: u64, breakdown_s: u64, retention_s: u64) -> Self {
        Self {
            number,
            bucket_width: Duration::from_secs(bucket_s),
            breakdown_width: Duration::from_secs(breakdown_s),
            retention: Duration::from_secs(retention_s),
        }
    }

    /// Returns the finest resolution that covers the window.
    pub(crate) fn covering(window: Duration) -> Self {
        let [fine, coarse] = Self::ALL;
        if window <= fine.retention { fine } else { coarse }
    }

    pub(crate) const fn width(&self, kind: StatsKind) -> Duration {
        match kind {
            StatsKind::Steps => self.bucket_width,
            _ => self.breakdown_width,
        }
    }
}

/// Returns the start of the bucket, in microseconds.
pub(crate) fn bucket_start(at: i64, width: Duration) -> i64 {
    let width = as_micros_i64(width).max(1);
    at - at.rem_euclid(width)
}

/// A query of recent activity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatsQuery<'a> {
    pub(crate) namespace: Option<&'a str>,
    pub(crate) resolution: Resolution,
    pub(crate) window: Duration,
}

impl StatsQuery<'_> {
    /// Returns the start of the first requested bucket of steps by outcome.
    pub(crate) fn first_bucket(&self, now: i64) -> i64 {
        let width = self.resolution.bucket_width.as_micros().max(1);
        let buckets = self.window.as_micros().div_ceil(width).max(1);
        let back = i64::try_from((buckets - 1) * width).unwrap_or(i64::MAX);
        bucket_start(now, self.resolution.bucket_width).saturating_sub(back)
    }

    /// Returns the start of the first requested bucket of all other counts.
    pub(crate) fn first_breakdown(&self, now: i64) -> i64 {
        let window = as_micros_i64(self.window);
        bucket_start(now.saturating_sub(window), self.resolution.breakdown_width)
    }
}

/// The counts that a store returns.
#[derive(Debug, Default)]
pub(crate) struct StatsRows {
    pub(crate) now: i64,
    pub(crate) buckets: Vec<BucketColumns>,
    pub(crate) breakdown: Vec<BreakdownColumns>,
}

impl StatsWindow {
    /// The largest number of operations, and of destinations, in a result.
    const MAX_NAMES: usize = 100;

    /// The largest number of rows that are read; those with the most failures come first.
    pub(crate) const MAX_ROWS: i64 = 2000;

    pub(crate) fn of(query: &StatsQuery<'_>, rows: StatsRows) -> Self {
        let width = query.resolution.bucket_width;
        let step = as_micros_i64(width);
        let (mut at, last) = (query.first_bucket(rows.now), bucket_start(rows.now, width));
        let mut buckets: BTreeMap<i64, StatsBucket> = BTreeMap::new();
        while at <= last {
            buckets.insert(at, StatsBucket { at: Moment(at), ..StatsBucket::default() });
            at = at.saturating_add(step);
        }
        for row in rows.buckets {
            // A bucket that begins during the read was not requested.
            if let Some(bucket) = buckets.get_mut(&row.start) {
                *bucket = StatsBucket {
                    at: bucket.at,
                    submitted: count(row.submitted),
                    succeeded: count(row.succeeded),
                    retried: count(row.retried),
                    failed: count(row.failed),
                    conflicted: count(row.conflicted),
                    other: count(row.other),
                };
            }
        }
        let mut window = Self {
            now: Moment(rows.now),
            width,
            buckets: buckets.into_values().collect(),
            ..Self::default()
        };
        window.add_breakdown(rows.breakdown);
        window
    }

    fn add_breakdown(&mut self, rows: Vec<BreakdownColumns>) {
        let (mut classes, mut attempts) = (BTreeMap::new(), BTreeMap::new());
        let (mut operations, mut destinations) = (BTreeMap::new(), BTreeMap::new());
        for BreakdownColumns { kind, namespace, name, outcome, total, class } in rows {
            let total = count(total);
            let names = match StatsKind::of_code(kind) {
                Some(StatsKind::Class) => {
                    *classes.entry(name).or_default() += total;
                    continue;
                }
                Some(StatsKind::Attempt) => {
                    *attempts.entry(name.parse().unwrap_or(0)).or_default() += total;
                    continue;
                }
                Some(StatsKind::Operation) => &mut operations,
                Some(StatsKind::Destination) => &mut destinations,
                Some(StatsKind::Steps) | None => continue,
            };
            let stats = names.entry((namespace.clone(), name.clone())).or_insert_with(|| FailureStats {
                namespace,
                name,
                ..FailureStats::default()
            });
            match outcome {
                StatsRow::SUCCESS => stats.successes += total,
                _ => stats.failures += total,
            }
            stats.last_class = class.or(stats.last_class.take());
        }
        self.classes = classes.into_iter().collect();
        self.classes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        self.attempts = attempts.into_iter().collect();
        self.operations = worst(operations);
        self.destinations = worst(destinations);
    }
}

fn worst(names: BTreeMap<(String, String), FailureStats>) -> Vec<FailureStats> {
    let mut names: Vec<FailureStats> = names.into_values().collect();
    names.sort_by_key(|name| std::cmp::Reverse((name.failures, name.successes)));
    names.truncate(StatsWindow::MAX_NAMES);
    names
}

/// A process that runs workers on a store, or joined it as a daemon.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct NodeRecord {
    /// The host and the process id.
    pub name: String,
    /// The release of holdoff.
    pub version: String,
    /// The time at which the process started.
    pub started_at: Moment,
    /// The time of the last report.
    pub seen_at: Moment,
    /// The version of the policies that are active on the node.
    pub policies: String,
    /// The difference between the node and the store's active policies, if there is one.
    pub drift: Option<String>,
    /// The number of steps that its workers run now.
    pub running: u64,
    /// The number of steps that its workers can run at once.
    pub slots: u64,
    /// The number of runs that ended on the node within the last minute.
    pub finished_last_minute: u64,
    /// Whether the last report is recent enough.
    pub is_alive: bool,
}

/// The report of a node about itself.
#[derive(Clone, Debug)]
pub(crate) struct NodeReport {
    pub(crate) id: uuid::Uuid,
    pub(crate) name: String,
    pub(crate) version: &'static str,
    pub(crate) policies: String,
    pub(crate) drift: Option<String>,
    pub(crate) running: u64,
    pub(crate) slots: u64,
    pub(crate) finished: u64,
}

impl NodeRecord {
    /// A node without a report for this long is not alive. An idle node reports every ten seconds.
    pub(crate) const ALIVE_FOR: Duration = Duration::from_secs(30);
    /// A node without a report for this long is removed from the list.
    pub(crate) const RETENTION: Duration = Duration::from_secs(24 * 3600);
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    fn succeeded(start: i64, succeeded: i64) -> BucketColumns {
        BucketColumns { start, submitted: 0, succeeded, retried: 0, failed: 0, conflicted: 0, other: 0 }
    }

    #[test]
    fn buckets_have_no_gaps_and_end_now() {
        let now = 1_000_003 * SECOND;
        let window = Duration::from_secs(60);
        let query = StatsQuery { namespace: None, resolution: Resolution::covering(window), window };
        let rows = StatsRows {
            now,
            buckets: vec![succeeded(1_000_000 * SECOND, 7), succeeded(5, 9)],
            breakdown: vec![],
        };
        let window = StatsWindow::of(&query, rows);
        assert_eq!((window.width, window.buckets.len()), (Duration::from_secs(5), 12));
        let gaps = window.buckets.windows(2).map(|pair| pair[1].at.since(pair[0].at));
        assert!(gaps.into_iter().all(|gap| gap == window.width));
        assert_eq!(
            window.buckets.last().map(|bucket| (bucket.at, bucket.succeeded)),
            Some((Moment(1_000_000 * SECOND), 7))
        );
        assert_eq!(window.buckets.iter().map(|bucket| bucket.succeeded).sum::<u64>(), 7);
    }

    #[test]
    fn long_windows_have_wide_buckets() {
        let resolution = |minutes: u64| Resolution::covering(Duration::from_secs(60 * minutes));
        assert_eq!(
            (resolution(15).bucket_width, resolution(16).bucket_width),
            (Duration::from_secs(5), Duration::from_secs(60))
        );
        let day = Duration::from_secs(24 * 3600);
        let query = StatsQuery { namespace: None, resolution: Resolution::covering(day), window: day };
        let window =
            StatsWindow::of(&query, StatsRows { now: 1_700_000_000 * SECOND, ..StatsRows::default() });
        assert_eq!(window.buckets.len(), 1440);
    }

    #[test]
    fn the_most_failures_come_first_with_their_last_class() {
        let row = |kind: StatsKind, name: &str, outcome, total, class: Option<&str>| BreakdownColumns {
            kind: kind as i16,
            namespace: "eu".to_owned(),
            name: name.to_owned(),
            outcome,
            total,
            class: class.map(str::to_owned),
        };
        let mut window = StatsWindow::default();
        window.add_breakdown(vec![
            row(StatsKind::Operation, "well", 0, 100, None),
            row(StatsKind::Operation, "bad", 1, 5, Some("timeout")),
            row(StatsKind::Operation, "bad", 0, 1, None),
            row(StatsKind::Class, "timeout", 0, 5, None),
            row(StatsKind::Attempt, "10", 0, 3, None),
            row(StatsKind::Attempt, "2", 0, 2, None),
        ]);
        let first =
            window.operations.first().map(|it| (it.name.as_str(), it.failures, it.last_class.as_deref()));
        assert_eq!(first, Some(("bad", 5, Some("timeout"))));
        assert_eq!(window.attempts, [(2, 2), (10, 3)]);
        assert_eq!(window.classes, [("timeout".to_owned(), 5)]);
    }
}

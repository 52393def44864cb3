//! Recent activity, over all nodes, for dashboards.
//!
//! Every node counts in memory the steps that are accepted and those that leave `running`, and adds its counts to small
//! rows in the store every two seconds. A row is keyed by the namespace and one further property, so that the number of
//! rows stays small, however many combinations of properties occur.

mod heart;
mod known;
mod tally;

use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) use heart::{Busy, Heart};

use crate::Moment;

/// The recent activity of a store, over all its nodes.
#[derive(Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct Pulse {
    /// The store's clock at the time of the read.
    pub now: Moment,
    /// The duration that each bucket covers.
    pub width: Duration,
    /// The buckets, the oldest first, without gaps.
    pub buckets: Vec<Beat>,
    /// Failures by class, the most frequent first.
    pub classes: Vec<(String, u64)>,
    /// Failures that were granted another attempt, by the number of the failed attempt; 10 stands for all later ones.
    pub attempts: Vec<(u32, u64)>,
    /// Operations, those with the most failures first.
    pub operations: Vec<Failing>,
    /// Hosts that HTTP steps call, those with the most failures first.
    pub destinations: Vec<Failing>,
}

/// The activity within one bucket of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Beat {
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
pub struct Failing {
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
pub(crate) enum What {
    Steps = 0,
    Class = 1,
    Attempt = 2,
    Operation = 3,
    Destination = 4,
}

/// A count to add to the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PulseRow {
    pub(crate) what: What,
    pub(crate) namespace: String,
    /// The class, the attempt, the operation or the destination.
    pub(crate) name: String,
    pub(crate) outcome: i16,
    pub(crate) count: u64,
    /// The class of the last failure.
    pub(crate) class: Option<String>,
}

impl PulseRow {
    /// The outcome of a step that was accepted. The others are those of [`Outcome`](crate::store::Outcome).
    pub(crate) const SUBMITTED: i16 = 100;
    /// The outcomes of an operation or a destination.
    pub(crate) const SUCCESS: i16 = 0;
    pub(crate) const FAILURE: i16 = 1;

    /// Returns the rows with each key once, in an order that is the same on all nodes.
    fn merged(rows: Vec<Self>) -> Vec<Self> {
        let mut merged: BTreeMap<_, Self> = BTreeMap::new();
        for row in rows {
            let key = (row.what, row.namespace.clone(), row.name.clone(), row.outcome);
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
pub(crate) struct Level {
    pub(crate) number: i16,
    /// The bucket width of steps by outcome.
    pub(crate) beat: Duration,
    /// The bucket width of all other counts, which have more rows.
    pub(crate) rest: Duration,
    pub(crate) kept: Duration,
}

impl Level {
    pub(crate) const ALL: [Self; 2] = [Self::new(0, 5, 60, 15 * 60), Self::new(1, 60, 900, 24 * 3600)];

    const fn new(number: i16, beat: u64, rest: u64, kept: u64) -> Self {
        let [beat, rest, kept] =
            [Duration::from_secs(beat), Duration::from_secs(rest), Duration::from_secs(kept)];
        Self { number, beat, rest, kept }
    }

    /// Returns the finest level that covers the window.
    pub(crate) fn reaching(window: Duration) -> Self {
        let [fine, coarse] = Self::ALL;
        if window <= fine.kept { fine } else { coarse }
    }

    pub(crate) const fn width(&self, what: What) -> Duration {
        match what {
            What::Steps => self.beat,
            _ => self.rest,
        }
    }
}

/// Returns the start of the bucket, in microseconds.
pub(crate) fn bucket(at: i64, width: Duration) -> i64 {
    let width = i64::try_from(width.as_micros()).unwrap_or(i64::MAX).max(1);
    at - at.rem_euclid(width)
}

/// A query of recent activity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) namespace: Option<&'a str>,
    pub(crate) level: Level,
    pub(crate) window: Duration,
}

impl Asked<'_> {
    /// Returns the start of the first requested bucket of steps by outcome.
    pub(crate) fn first_beat(&self, now: i64) -> i64 {
        let width = self.level.beat.as_micros().max(1);
        let beats = self.window.as_micros().div_ceil(width).max(1);
        let back = i64::try_from((beats - 1) * width).unwrap_or(i64::MAX);
        bucket(now, self.level.beat).saturating_sub(back)
    }

    /// Returns the start of the first requested bucket of all other counts.
    pub(crate) fn first_rest(&self, now: i64) -> i64 {
        let window = i64::try_from(self.window.as_micros()).unwrap_or(i64::MAX);
        bucket(now.saturating_sub(window), self.level.rest)
    }
}

/// The counts that a store returns.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) now: i64,
    pub(crate) beats: Vec<BeatRow>,
    pub(crate) rest: Vec<RestRow>,
}

/// Start of the bucket, then the numbers of submitted, succeeded, retried, failed, conflicted and other.
pub(crate) type BeatRow = (i64, i64, i64, i64, i64, i64, i64);

/// Kind, namespace, name, outcome, count, and the class of the last failure.
pub(crate) type RestRow = (i16, String, String, i16, i64, Option<String>);

impl Pulse {
    /// The largest number of operations, and of destinations, in a result.
    const MOST_NAMES: usize = 100;

    /// The largest number of rows that are read; those with the most failures come first.
    pub(crate) const MOST_ROWS: i64 = 2000;

    pub(crate) fn of(asked: &Asked<'_>, kept: Kept) -> Self {
        let width = asked.level.beat;
        let step = i64::try_from(width.as_micros()).unwrap_or(i64::MAX);
        let (mut at, last) = (asked.first_beat(kept.now), bucket(kept.now, width));
        let mut beats: BTreeMap<i64, Beat> = BTreeMap::new();
        while at <= last {
            beats.insert(at, Beat { at: Moment(at), ..Beat::default() });
            at = at.saturating_add(step);
        }
        for (at, submitted, succeeded, retried, failed, conflicted, other) in kept.beats {
            // A bucket that begins during the read was not requested.
            if let Some(beat) = beats.get_mut(&at) {
                let [submitted, succeeded, retried, failed, conflicted, other] =
                    [submitted, succeeded, retried, failed, conflicted, other]
                        .map(|count| u64::try_from(count).unwrap_or(0));
                *beat = Beat { at: beat.at, submitted, succeeded, retried, failed, conflicted, other };
            }
        }
        let mut pulse =
            Self { now: Moment(kept.now), width, buckets: beats.into_values().collect(), ..Self::default() };
        pulse.add_rest(kept.rest);
        pulse
    }

    fn add_rest(&mut self, rows: Vec<RestRow>) {
        let (mut classes, mut attempts) = (BTreeMap::new(), BTreeMap::new());
        let (mut operations, mut destinations) = (BTreeMap::new(), BTreeMap::new());
        for (what, namespace, name, outcome, count, class) in rows {
            let count = u64::try_from(count).unwrap_or(0);
            let failing = match what {
                1 => {
                    *classes.entry(name).or_default() += count;
                    continue;
                }
                2 => {
                    *attempts.entry(name.parse().unwrap_or(0)).or_default() += count;
                    continue;
                }
                3 => &mut operations,
                _ => &mut destinations,
            };
            let failing = failing.entry((namespace.clone(), name.clone())).or_insert_with(|| Failing {
                namespace,
                name,
                ..Failing::default()
            });
            match outcome {
                PulseRow::SUCCESS => failing.successes += count,
                _ => failing.failures += count,
            }
            failing.last_class = class.or(failing.last_class.take());
        }
        self.classes = classes.into_iter().collect();
        self.classes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        self.attempts = attempts.into_iter().collect();
        self.operations = worst(operations);
        self.destinations = worst(destinations);
    }
}

fn worst(names: BTreeMap<(String, String), Failing>) -> Vec<Failing> {
    let mut names: Vec<Failing> = names.into_values().collect();
    names.sort_by_key(|name| std::cmp::Reverse((name.failures, name.successes)));
    names.truncate(Pulse::MOST_NAMES);
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    #[test]
    fn a_plot_has_no_gaps_and_ends_now() {
        let now = 1_000_003 * SECOND;
        let window = Duration::from_secs(60);
        let asked = Asked { namespace: None, level: Level::reaching(window), window };
        let kept = Kept {
            now,
            beats: vec![(1_000_000 * SECOND, 0, 7, 0, 0, 0, 0), (5, 0, 9, 0, 0, 0, 0)],
            rest: vec![],
        };
        let pulse = Pulse::of(&asked, kept);
        assert_eq!((pulse.width, pulse.buckets.len()), (Duration::from_secs(5), 12));
        let gaps = pulse.buckets.windows(2).map(|pair| pair[1].at.since(pair[0].at));
        assert!(gaps.into_iter().all(|gap| gap == pulse.width));
        assert_eq!(
            pulse.buckets.last().map(|beat| (beat.at, beat.succeeded)),
            Some((Moment(1_000_000 * SECOND), 7))
        );
        assert_eq!(pulse.buckets.iter().map(|beat| beat.succeeded).sum::<u64>(), 7);
    }

    #[test]
    fn long_windows_go_by_minutes() {
        let level = |minutes: u64| Level::reaching(Duration::from_secs(60 * minutes));
        assert_eq!((level(15).beat, level(16).beat), (Duration::from_secs(5), Duration::from_secs(60)));
        let day = Duration::from_secs(24 * 3600);
        let asked = Asked { namespace: None, level: Level::reaching(day), window: day };
        let pulse = Pulse::of(&asked, Kept { now: 1_700_000_000 * SECOND, ..Kept::default() });
        assert_eq!(pulse.buckets.len(), 1440);
    }

    #[test]
    fn the_worst_come_first_with_their_last_class() {
        let row = |what, name: &str, outcome, count, class: Option<&str>| {
            let class = class.map(str::to_owned);
            (what, "eu".to_owned(), name.to_owned(), outcome, count, class)
        };
        let mut pulse = Pulse::default();
        pulse.add_rest(vec![
            row(3, "well", 0, 100, None),
            row(3, "bad", 1, 5, Some("timeout")),
            row(3, "bad", 0, 1, None),
            row(1, "timeout", 0, 5, None),
            row(2, "10", 0, 3, None),
            row(2, "2", 0, 2, None),
        ]);
        let first =
            pulse.operations.first().map(|it| (it.name.as_str(), it.failures, it.last_class.as_deref()));
        assert_eq!(first, Some(("bad", 5, Some("timeout"))));
        assert_eq!(pulse.attempts, [(2, 2), (10, 3)]);
        assert_eq!(pulse.classes, [("timeout".to_owned(), 5)]);
    }
}

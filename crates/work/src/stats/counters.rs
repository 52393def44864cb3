//! The counts of one node since its last write to the store.
//!
//! A caller that may submit steps can invent any number of names. The number of names of each kind that are counted
//! separately is limited, with a limit of its own for failing names. The others are counted together.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::{StatsKind, StatsRow};
use crate::Lane;
use crate::store::{AttemptOutcome, Exit, Report};

/// Above this number of distinct events, operations and destinations are combined; above twice as many, namespaces too.
const MAX_EVENTS: usize = 1000;

/// The largest number of operations, and of destinations, in one write: those with the most failures, then the busiest.
const MAX_NAMES: usize = 50;

/// The name under which the others are counted.
const OTHER: &str = "other";

/// This attempt and all later ones are counted together.
const LAST_ATTEMPT: i32 = 10;

/// A counted event.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Event {
    lane: Arc<Lane>,
    destination: Option<Box<str>>,
    /// The outcome of a run; `None` for a step that was accepted.
    outcome: Option<AttemptOutcome>,
    /// Empty unless the run failed.
    class: &'static str,
    /// Zero unless another attempt was granted.
    attempt: u8,
}

/// Events, and how often each occurred.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    events: HashMap<Event, u64>,
}

impl Counters {
    /// Counts accepted steps.
    pub(crate) fn submitted(&mut self, lane: &Arc<Lane>, count: u64) {
        let lane = Arc::clone(lane);
        self.add(Event { lane, destination: None, outcome: None, class: "", attempt: 0 }, count);
    }

    /// Counts the end of a run.
    pub(crate) fn finished(&mut self, lane: &Arc<Lane>, report: &Report) {
        let (class, attempt) = match &report.exit {
            Exit::Retry { why, .. } => (why.class, report.attempt.clamp(1, LAST_ATTEMPT)),
            Exit::Failed(why, _) | Exit::Conflicted(why) => (why.class, 0),
            Exit::Succeeded(_) | Exit::Requeued { .. } => ("", 0),
        };
        self.add(
            Event {
                lane: Arc::clone(lane),
                destination: report.destination.clone(),
                outcome: Some(report.exit.outcome()),
                class,
                attempt: u8::try_from(attempt).unwrap_or(u8::MAX),
            },
            1,
        );
    }

    /// Counts a rescued step, or a step that failed because it was rescued too often.
    pub(crate) fn rescued(&mut self, lane: &Arc<Lane>, has_failed: bool) {
        let (outcome, class) = if has_failed {
            (AttemptOutcome::Failed, holdoff_policy::Class::Timeout.name())
        } else {
            (AttemptOutcome::Rescued, "")
        };
        let lane = Arc::clone(lane);
        self.add(Event { lane, destination: None, outcome: Some(outcome), class, attempt: 0 }, 1);
    }

    fn add(&mut self, event: Event, count: u64) {
        if let Some(counted) = self.events.get_mut(&event) {
            *counted += count;
            return;
        }
        let event = match self.events.len() {
            ..MAX_EVENTS => event,
            len => {
                let namespace = if len < 2 * MAX_EVENTS { event.lane.namespace.as_str() } else { OTHER };
                let lane = Lane {
                    namespace: namespace.to_owned(),
                    operation: OTHER.to_owned(),
                    ..other(&event.lane)
                };
                Event { lane: Arc::new(lane), destination: None, ..event }
            }
        };
        *self.events.entry(event).or_default() += count;
    }

    /// Returns the number of runs that ended.
    pub(crate) fn runs(&self) -> u64 {
        self.events.iter().filter(|(event, _)| event.outcome.is_some()).map(|(_, count)| count).sum()
    }

    /// Returns the counts as rows to add to the store, with each key once, in an order that is the same on all nodes.
    pub(crate) fn rows(&self) -> Vec<StatsRow> {
        let mut rows = Sums::default();
        for (event, count) in &self.events {
            event.count_into(&mut rows, *count);
        }
        let [operations, destinations] =
            [StatsKind::Operation, StatsKind::Destination].map(|kind| rows.busiest(kind, MAX_NAMES));
        let mut folded = Sums::default();
        for ((kind, namespace, name, outcome), (count, class)) in rows.0 {
            let kept = match kind {
                StatsKind::Operation => Some(&operations),
                StatsKind::Destination => Some(&destinations),
                _ => None,
            };
            let is_kept = kept.is_none_or(|kept| kept.contains(&(namespace.clone(), name.clone())));
            let name = if is_kept { name } else { OTHER.to_owned() };
            folded.add((kind, namespace, name, outcome), count, class);
        }
        let row = |((kind, namespace, name, outcome), (count, class))| StatsRow {
            kind,
            namespace,
            name,
            outcome,
            count,
            class,
        };
        folded.0.into_iter().map(row).collect()
    }
}

/// Returns a lane that stands for all lanes.
fn other(lane: &Lane) -> Lane {
    Lane {
        namespace: String::new(),
        queue: String::new(),
        operation: String::new(),
        kind: lane.kind,
        priority: 0,
    }
}

impl Event {
    fn count_into(&self, rows: &mut Sums, count: u64) {
        let namespace = || self.lane.namespace.clone();
        let outcome = self.outcome.map_or(StatsRow::SUBMITTED, AttemptOutcome::code);
        rows.add((StatsKind::Steps, namespace(), String::new(), outcome), count, None);
        let is_failure = !self.class.is_empty();
        if is_failure {
            rows.add((StatsKind::Class, namespace(), self.class.to_owned(), 0), count, None);
        }
        if self.attempt > 0 {
            rows.add((StatsKind::Attempt, namespace(), self.attempt.to_string(), 0), count, None);
        }
        if !is_failure && self.outcome != Some(AttemptOutcome::Succeeded) {
            return;
        }
        let class = is_failure.then(|| self.class.to_owned());
        let fate = if is_failure { StatsRow::FAILURE } else { StatsRow::SUCCESS };
        rows.add(
            (StatsKind::Operation, namespace(), self.lane.operation.clone(), fate),
            count,
            class.clone(),
        );
        if let Some(destination) = &self.destination {
            rows.add((StatsKind::Destination, namespace(), destination.to_string(), fate), count, class);
        }
    }
}

type Key = (StatsKind, String, String, i16);

/// Counts by key, with the class of the last failure.
#[derive(Default)]
struct Sums(BTreeMap<Key, (u64, Option<String>)>);

impl Sums {
    fn add(&mut self, key: Key, count: u64, class: Option<String>) {
        let sum = self.0.entry(key).or_default();
        sum.0 += count;
        sum.1 = class.or(sum.1.take());
    }

    /// Returns the names of a kind with the most failures, then the busiest.
    fn busiest(&self, wanted: StatsKind, most: usize) -> std::collections::BTreeSet<(String, String)> {
        let mut names: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
        for ((kind, namespace, name, outcome), (count, _)) in &self.0 {
            if *kind == wanted {
                let sum = names.entry((namespace, name)).or_default();
                sum.0 += if *outcome == StatsRow::FAILURE { *count } else { 0 };
                sum.1 += count;
            }
        }
        let mut names: Vec<_> = names.into_iter().collect();
        names.sort_by_key(|(_, counts)| std::cmp::Reverse(*counts));
        names
            .into_iter()
            .take(most)
            .map(|((namespace, name), _)| (namespace.to_owned(), name.to_owned()))
            .collect()
    }
}

/// How long a name is counted separately: as long as the widest bucket.
const SEPARATE_FOR: Duration = Duration::from_secs(900);
/// The largest numbers of failing and of other names of one kind.
const MAX_FAILING: usize = 200;
const MAX_HEALTHY: usize = 100;

/// The names that are currently counted separately.
#[derive(Debug, Default)]
pub(crate) struct SeparateNames {
    failing: HashSet<(StatsKind, String, String)>,
    healthy: HashSet<(StatsKind, String, String)>,
    since: Option<Duration>,
}

impl SeparateNames {
    /// Replaces names beyond the limits by `other`. Failing names are admitted first.
    pub(crate) fn fold(&mut self, mut rows: Vec<StatsRow>, now: Duration) -> Vec<StatsRow> {
        if self.since.is_none_or(|since| now.saturating_sub(since) >= SEPARATE_FOR) {
            *self = Self { since: Some(now), ..Self::default() };
        }
        rows.sort_by_key(|row| std::cmp::Reverse(row.outcome));
        for row in &mut rows {
            if matches!(row.kind, StatsKind::Operation | StatsKind::Destination) && !self.admits(row) {
                OTHER.clone_into(&mut row.name);
            }
        }
        rows
    }

    fn admits(&mut self, row: &StatsRow) -> bool {
        let key = (row.kind, row.namespace.clone(), row.name.clone());
        if self.failing.contains(&key) || self.healthy.contains(&key) {
            return true;
        }
        let is_failure = row.outcome == StatsRow::FAILURE;
        let (names, most) =
            if is_failure { (&mut self.failing, MAX_FAILING) } else { (&mut self.healthy, MAX_HEALTHY) };
        let of_its_kind = names.iter().filter(|(kind, ..)| *kind == row.kind).count();
        of_its_kind < most && names.insert(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdoff_policy::Class;

    use crate::store::FailureText;
    use crate::store::StepOutput;
    use crate::{DelaySource, FailureReason};
    use crate::{Kind, TaskId};

    fn lane(operation: &str) -> Arc<Lane> {
        let (namespace, queue, operation) = ("eu".to_owned(), "default".to_owned(), operation.to_owned());
        Arc::new(Lane { namespace, queue, operation, kind: Kind::Http, priority: 5 })
    }

    fn report(attempt: i32, destination: Option<&str>, exit: Exit) -> Report {
        let step = TaskId::fresh().step(0);
        let destination = destination.map(Into::into);
        let (lease, took) = (1, Duration::ZERO);
        Report {
            step,
            lease,
            has_children: false,
            took,
            ctid_hint: None,
            attempt,
            destination,
            trace: None,
            exit,
        }
    }

    fn failed() -> Exit {
        Exit::Failed(FailureText::new(Class::Permanent, String::new()), FailureReason::Permanent)
    }

    #[test]
    fn an_event_is_counted_under_each_of_its_names() {
        let mut counters = Counters::default();
        counters.submitted(&lane("call"), 3);
        let why = FailureText::new(Class::Transient, String::new());
        let retry = Exit::Retry { delay: Duration::ZERO, source: DelaySource::Policy, refreshed: false, why };
        counters.finished(&lane("call"), &report(99, Some("a.example"), retry));
        counters
            .finished(&lane("call"), &report(1, Some("a.example"), Exit::Succeeded(StepOutput::default())));
        counters.finished(&lane("call"), &report(1, None, failed()));
        counters.rescued(&lane("call"), false);
        let rows: Vec<_> =
            counters.rows().into_iter().map(|row| (row.kind, row.name, row.outcome, row.count)).collect();
        let row = |kind, name: &str, outcome, count| (kind, name.to_owned(), outcome, count);
        let expected = [
            row(StatsKind::Steps, "", AttemptOutcome::Succeeded.code(), 1),
            row(StatsKind::Steps, "", AttemptOutcome::Retried.code(), 1),
            row(StatsKind::Steps, "", AttemptOutcome::Failed.code(), 1),
            row(StatsKind::Steps, "", AttemptOutcome::Rescued.code(), 1),
            row(StatsKind::Steps, "", StatsRow::SUBMITTED, 3),
            row(StatsKind::Class, "permanent", 0, 1),
            row(StatsKind::Class, "transient", 0, 1),
            row(StatsKind::Attempt, "10", 0, 1),
            row(StatsKind::Operation, "call", StatsRow::SUCCESS, 1),
            row(StatsKind::Operation, "call", StatsRow::FAILURE, 2),
            row(StatsKind::Destination, "a.example", StatsRow::SUCCESS, 1),
            row(StatsKind::Destination, "a.example", StatsRow::FAILURE, 1),
        ];
        assert_eq!(rows, expected);
        assert_eq!(counters.runs(), 4);
    }

    #[test]
    fn excess_names_are_folded_without_loss() {
        let mut counters = Counters::default();
        for number in 0..5000 {
            counters.finished(
                &lane(&format!("well {number}")),
                &report(1, None, Exit::Succeeded(StepOutput::default())),
            );
        }
        counters.finished(&lane("bad"), &report(1, Some("b.example"), failed()));
        assert!(counters.events.len() <= 2 * MAX_EVENTS + 2);
        let rows = counters.rows();
        assert!(rows.len() <= 2 * MAX_NAMES + 10, "{}", rows.len());
        let of = |kind| rows.iter().filter(|row| row.kind == kind).map(|row| row.count).sum::<u64>();
        assert_eq!((of(StatsKind::Steps), of(StatsKind::Operation), of(StatsKind::Class)), (5001, 5001, 1));
    }

    #[test]
    fn failing_names_precede_busy_ones() {
        let mut counters = Counters::default();
        for number in 0..500 {
            for _ in 0..3 {
                counters.finished(
                    &lane(&format!("well {number}")),
                    &report(1, None, Exit::Succeeded(StepOutput::default())),
                );
            }
        }
        counters.finished(&lane("bad"), &report(1, None, failed()));
        assert!(
            counters.rows().iter().any(|row| row.name == "bad" && row.class.as_deref() == Some("permanent"))
        );
    }

    fn destination(name: &str, outcome: i16) -> StatsRow {
        let (kind, namespace) = (StatsKind::Destination, "eu".to_owned());
        StatsRow { kind, namespace, name: name.to_owned(), outcome, count: 1, class: None }
    }

    #[test]
    fn invented_names_are_counted_as_other() {
        let mut known = SeparateNames::default();
        let mut names = HashSet::new();
        for number in 0..5000 {
            let rows =
                known.fold(vec![destination(&format!("h{number}"), StatsRow::SUCCESS)], Duration::ZERO);
            names.extend(rows.into_iter().map(|row| row.name));
        }
        assert_eq!(names.len(), MAX_HEALTHY + 1);
        let failing = known.fold(vec![destination("bad", StatsRow::FAILURE)], Duration::ZERO);
        assert_eq!(failing[0].name, "bad", "failing names have a limit of their own");
        let later = known.fold(vec![destination("h4999", StatsRow::SUCCESS)], SEPARATE_FOR);
        assert_eq!(later[0].name, "h4999", "names are admitted again");
    }
}

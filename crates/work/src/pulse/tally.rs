//! The counts of one node since its last write to the store.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::{PulseRow, What};
use crate::Lane;
use crate::store::{Exit, Outcome, Report};

/// Above this number of distinct events, operations and destinations are combined; above twice as many, namespaces too.
const MOST_KINDS: usize = 1000;

/// The largest number of operations, and of destinations, in one write: those with the most failures, then the busiest.
const MOST_NAMES: usize = 50;

/// The name under which the others are counted.
pub(super) const OTHER: &str = "other";

/// This attempt and all later ones are counted together.
const LAST_ATTEMPT: i32 = 10;

/// A counted event.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Event {
    lane: Arc<Lane>,
    destination: Option<Box<str>>,
    /// The outcome of a run; `None` for a step that was accepted.
    outcome: Option<Outcome>,
    /// Empty unless the run failed.
    class: &'static str,
    /// Zero unless another attempt was granted.
    attempt: u8,
}

/// Events, and how often each occurred.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    events: HashMap<Event, u64>,
}

impl Tally {
    /// Counts accepted steps.
    pub(crate) fn submitted(&mut self, lane: &Arc<Lane>, count: u64) {
        let lane = Arc::clone(lane);
        self.add(Event { lane, destination: None, outcome: None, class: "", attempt: 0 }, count);
    }

    /// Counts the end of a run.
    pub(crate) fn finished(&mut self, lane: &Arc<Lane>, report: &Report) {
        let (class, attempt) = match &report.exit {
            Exit::Retry { why, .. } => (why.class, report.attempt.clamp(1, LAST_ATTEMPT)),
            Exit::Failed(why) | Exit::Conflicted(why) => (why.class, 0),
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
    pub(crate) fn rescued(&mut self, lane: &Arc<Lane>, is_given_up: bool) {
        let (outcome, class) = if is_given_up {
            (Outcome::Failed, holdoff_policy::Class::Timeout.name())
        } else {
            (Outcome::Rescued, "")
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
            ..MOST_KINDS => event,
            len => {
                let namespace = if len < 2 * MOST_KINDS { event.lane.namespace.as_str() } else { OTHER };
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
    pub(crate) fn rows(&self) -> Vec<PulseRow> {
        let mut rows = Sums::default();
        for (event, count) in &self.events {
            event.count_into(&mut rows, *count);
        }
        let [operations, destinations] =
            [What::Operation, What::Destination].map(|what| rows.busiest(what, MOST_NAMES));
        let mut folded = Sums::default();
        for ((what, namespace, name, outcome), (count, class)) in rows.0 {
            let kept = match what {
                What::Operation => Some(&operations),
                What::Destination => Some(&destinations),
                _ => None,
            };
            let is_kept = kept.is_none_or(|kept| kept.contains(&(namespace.clone(), name.clone())));
            let name = if is_kept { name } else { OTHER.to_owned() };
            folded.add((what, namespace, name, outcome), count, class);
        }
        let row = |((what, namespace, name, outcome), (count, class))| PulseRow {
            what,
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
        let outcome = self.outcome.map_or(PulseRow::SUBMITTED, Outcome::code);
        rows.add((What::Steps, namespace(), String::new(), outcome), count, None);
        let is_failure = !self.class.is_empty();
        if is_failure {
            rows.add((What::Class, namespace(), self.class.to_owned(), 0), count, None);
        }
        if self.attempt > 0 {
            rows.add((What::Attempt, namespace(), self.attempt.to_string(), 0), count, None);
        }
        if !is_failure && self.outcome != Some(Outcome::Succeeded) {
            return;
        }
        let class = is_failure.then(|| self.class.to_owned());
        let fate = if is_failure { PulseRow::FAILURE } else { PulseRow::SUCCESS };
        rows.add((What::Operation, namespace(), self.lane.operation.clone(), fate), count, class.clone());
        if let Some(destination) = &self.destination {
            rows.add((What::Destination, namespace(), destination.to_string(), fate), count, class);
        }
    }
}

type Key = (What, String, String, i16);

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
    fn busiest(&self, wanted: What, most: usize) -> std::collections::BTreeSet<(String, String)> {
        let mut names: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
        for ((what, namespace, name, outcome), (count, _)) in &self.0 {
            if *what == wanted {
                let sum = names.entry((namespace, name)).or_default();
                sum.0 += if *outcome == PulseRow::FAILURE { *count } else { 0 };
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::Why;
    use crate::{Kind, Payload, TaskId};

    fn lane(operation: &str) -> Arc<Lane> {
        let (namespace, queue, operation) = ("eu".to_owned(), "default".to_owned(), operation.to_owned());
        Arc::new(Lane { namespace, queue, operation, kind: Kind::Http, priority: 5 })
    }

    fn report(attempt: i32, destination: Option<&str>, exit: Exit) -> Report {
        let step = TaskId::fresh().step(0);
        let destination = destination.map(Into::into);
        let (lease, took) = (1, Duration::ZERO);
        Report { step, lease, has_children: false, took, whereabouts: None, attempt, destination, exit }
    }

    fn failed() -> Exit {
        Exit::Failed(Why { class: "permanent", message: String::new() })
    }

    #[test]
    fn everything_is_counted_under_every_name_it_has() {
        let mut tally = Tally::default();
        tally.submitted(&lane("call"), 3);
        let why = Why { class: "transient", message: String::new() };
        let retry = Exit::Retry { delay: Duration::ZERO, refreshed: false, why };
        tally.finished(&lane("call"), &report(99, Some("a.example"), retry));
        tally.finished(&lane("call"), &report(1, Some("a.example"), Exit::Succeeded(Payload::empty())));
        tally.finished(&lane("call"), &report(1, None, failed()));
        tally.rescued(&lane("call"), false);
        let rows: Vec<_> =
            tally.rows().into_iter().map(|row| (row.what, row.name, row.outcome, row.count)).collect();
        let row = |what, name: &str, outcome, count| (what, name.to_owned(), outcome, count);
        let expected = [
            row(What::Steps, "", Outcome::Succeeded.code(), 1),
            row(What::Steps, "", Outcome::Retried.code(), 1),
            row(What::Steps, "", Outcome::Failed.code(), 1),
            row(What::Steps, "", Outcome::Rescued.code(), 1),
            row(What::Steps, "", PulseRow::SUBMITTED, 3),
            row(What::Class, "permanent", 0, 1),
            row(What::Class, "transient", 0, 1),
            row(What::Attempt, "10", 0, 1),
            row(What::Operation, "call", PulseRow::SUCCESS, 1),
            row(What::Operation, "call", PulseRow::FAILURE, 2),
            row(What::Destination, "a.example", PulseRow::SUCCESS, 1),
            row(What::Destination, "a.example", PulseRow::FAILURE, 1),
        ];
        assert_eq!(rows, expected);
        assert_eq!(tally.runs(), 4);
    }

    #[test]
    fn names_without_end_become_others_and_nothing_is_lost() {
        let mut tally = Tally::default();
        for number in 0..5000 {
            tally.finished(
                &lane(&format!("well {number}")),
                &report(1, None, Exit::Succeeded(Payload::empty())),
            );
        }
        tally.finished(&lane("bad"), &report(1, Some("b.example"), failed()));
        assert!(tally.events.len() <= 2 * MOST_KINDS + 2);
        let rows = tally.rows();
        assert!(rows.len() <= 2 * MOST_NAMES + 10, "{}", rows.len());
        let of = |what| rows.iter().filter(|row| row.what == what).map(|row| row.count).sum::<u64>();
        assert_eq!((of(What::Steps), of(What::Operation), of(What::Class)), (5001, 5001, 1));
    }

    #[test]
    fn what_fails_is_shown_before_what_is_busy() {
        let mut tally = Tally::default();
        for number in 0..500 {
            for _ in 0..3 {
                tally.finished(
                    &lane(&format!("well {number}")),
                    &report(1, None, Exit::Succeeded(Payload::empty())),
                );
            }
        }
        tally.finished(&lane("bad"), &report(1, None, failed()));
        assert!(
            tally.rows().iter().any(|row| row.name == "bad" && row.class.as_deref() == Some("permanent"))
        );
    }
}

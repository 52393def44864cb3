//! The conditions that must hold when all steps are done.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::path::Path;
use std::time::Duration;

use sqlx::types::Uuid;

use crate::chaos::plan::Behaviour;
use crate::chaos::records::{Attempt, Done, Records};

/// Outcomes and states, by the numbers that the stores keep.
const RETRIED: i16 = 1;
const SNOOZED: std::ops::RangeInclusive<i16> = 4..=6;
const RESCUED: i16 = 7;
const SUCCEEDED_STATE: i16 = 3;

const HOUR_MICROS: i64 = 3_600_000_000;
const SECOND_MICROS: i64 = 1_000_000;

type Key = (Uuid, i32);

/// The entries of the workers' log about lost leases.
pub(crate) struct LeaseLog {
    stale: usize,
    repeated: usize,
    lost: usize,
    polite: usize,
}

impl LeaseLog {
    pub(crate) fn in_log(log: &Path) -> Self {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let count =
            |what: &[&str]| text.lines().filter(|line| what.iter().all(|part| line.contains(part))).count();
        let late = "rejected a report: its lease no longer holds the step";
        let stale = count(&[late, "receipt=Recorded(Rescued)"]) + count(&[late, "receipt=Fenced"]);
        let lost = count(&["its lease was lost"]) + count(&["its lease was not renewed"]);
        Self { stale, repeated: count(&[late]) - stale, lost, polite: count(&["stopped by itself"]) }
    }

    /// Returns whether stale workers have reported, and workers have noticed a lost lease.
    pub(crate) fn is_all(&self) -> bool {
        self.stale > 0 && self.lost > 0
    }
}

impl fmt::Display for LeaseLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {:>6} stale reports that changed nothing", self.stale)?;
        writeln!(f, "  {:>6} repeated reports that changed nothing", self.repeated)?;
        writeln!(f, "  {:>6} leases that a worker knew it had lost", self.lost)?;
        writeln!(f, "  {:>6} handlers that stopped by themselves", self.polite)
    }
}

pub(crate) fn check(records: &Records, seed: u64, steps: u64, has_server: bool, took: Duration) {
    assert!(records.violations.is_empty(), "{:?}", records.violations);
    let attempts = by_step(&records.attempts);
    nothing_is_lost(records, steps);
    counters_add_up(records, &attempts, seed);
    effects_are_fenced(records, &attempts);
    children_come_after_parents(records, &attempts);
    clocks_are_the_stores(records, has_server, took);
    let count = |outcome| records.attempts.iter().filter(|attempt| attempt.outcome == outcome).count();
    let snoozed = records.attempts.iter().filter(|attempt| SNOOZED.contains(&attempt.outcome)).count();
    let (rescued, retried) = (count(RESCUED), count(RETRIED));
    assert!(
        rescued > 0 && retried > 0 && snoozed > 0,
        "{rescued} rescued, {retried} retried, {snoozed} snoozed"
    );
    println!(
        "  {} steps done in {} runs: {rescued} rescued, {retried} failed, {snoozed} put back\n  {} effects applied, {} \
         stale ones refused, {} edges",
        records.done.len(),
        records.attempts.len() + records.done.len(),
        records.applications.len(),
        records.refusals,
        records.edges.len()
    );
}

fn by_step(attempts: &[Attempt]) -> HashMap<Key, Vec<&Attempt>> {
    let mut by_step: HashMap<Key, Vec<&Attempt>> = HashMap::new();
    for attempt in attempts {
        by_step.entry((attempt.task, attempt.step)).or_default().push(attempt);
    }
    for attempts in by_step.values_mut() {
        attempts.sort_by_key(|attempt| attempt.lease);
    }
    by_step
}

fn number(done: &Done) -> u64 {
    serde_json::from_slice(done.output.as_deref().unwrap_or_default()).unwrap()
}

fn named((task, step): Key) -> String {
    format!("{task}/{step}")
}

/// Every submitted step has succeeded exactly once, and there are no other steps.
fn nothing_is_lost(records: &Records, steps: u64) {
    assert_eq!(records.live, 0, "steps are left");
    assert_eq!(records.done.len() as u64, steps);
    assert!(records.done.iter().all(|done| done.state == SUCCEEDED_STATE), "a step did not succeed");
    let numbers: HashSet<u64> = records.done.iter().map(number).collect();
    assert_eq!(numbers.len() as u64, steps, "a step was accepted twice");
    assert!((0..steps).all(|step| numbers.contains(&step)));
}

/// A claim raises the lease by one, and every exit but success raises it by one more. Each run that did not succeed
/// therefore has an odd lease of its own, without gaps, and the success has the next odd one. The failures are the
/// planned ones: no other fault counts as a failure, and no failure is lost or counted twice.
fn counters_add_up(records: &Records, attempts: &HashMap<Key, Vec<&Attempt>>, seed: u64) {
    for done in &records.done {
        let key = (done.task, done.step);
        let mine = attempts.get(&key).map(Vec::as_slice).unwrap_or_default();
        let leases: Vec<i64> = mine.iter().map(|attempt| attempt.lease).collect();
        let expected: Vec<i64> = (0..done.lease / 2).map(|run| 2 * run + 1).collect();
        assert_eq!(done.lease % 2, 1, "{}", named(key));
        assert_eq!(leases, expected, "{} succeeded under lease {}", named(key), done.lease);
        let count = |wanted: &dyn Fn(i16) -> bool| {
            i32::try_from(mine.iter().filter(|attempt| wanted(attempt.outcome)).count()).unwrap()
        };
        assert_eq!(done.failures, count(&|outcome| outcome == RETRIED), "{}", named(key));
        assert_eq!(done.rescues, count(&|outcome| outcome == RESCUED), "{}", named(key));
        assert_eq!(done.snoozes, count(&|outcome| SNOOZED.contains(&outcome)), "{}", named(key));
        assert_eq!(mine.len(), usize::try_from(done.failures + done.rescues + done.snoozes).unwrap());
        let planned = i32::try_from(Behaviour::of(seed, number(done)).failures).unwrap();
        assert_eq!(done.failures, planned, "{}", named(key));
    }
    let stale = |attempt: &&Attempt| attempt.message.as_deref() == Some("stale, and knows it");
    assert!(!records.attempts.iter().any(|attempt| stale(&attempt)), "a stale worker was believed");
}

/// The worker whose success was accepted acted before, and no worker has claimed the step since: the last applied
/// token is exactly the lease of the success. Tokens were applied in ascending order, and each was the lease of a
/// claim.
fn effects_are_fenced(records: &Records, attempts: &HashMap<Key, Vec<&Attempt>>) {
    let mut applied: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for (step, token) in &records.applications {
        applied.entry(step).or_default().push(*token);
    }
    let effects: HashMap<&str, _> =
        records.effects.iter().map(|effect| (effect.step.as_str(), effect)).collect();
    assert_eq!(effects.len(), records.done.len(), "each completed step has exactly one effect");
    for done in &records.done {
        let key = (done.task, done.step);
        let name = named(key);
        let (effect, tokens) = (effects[name.as_str()], &applied[name.as_str()]);
        assert_eq!(effect.token, done.lease, "{name}: the last effect is not from the claim that succeeded");
        assert_eq!(tokens.last(), Some(&done.lease), "{name}");
        assert_eq!(tokens.len(), usize::try_from(effect.applied).unwrap(), "{name}");
        assert!(
            tokens.is_sorted_by(|earlier, later| earlier < later),
            "{name}: a stale effect in {tokens:?}"
        );
        let mine = attempts.get(&key).map(Vec::as_slice).unwrap_or_default();
        let is_known =
            |token: &i64| *token == done.lease || mine.iter().any(|attempt| attempt.lease == *token);
        assert!(
            tokens.iter().all(is_known),
            "{name}: an effect has a token that was never claimed, in {tokens:?}"
        );
    }
}

/// No run of a child began before all its parents had succeeded.
fn children_come_after_parents(records: &Records, attempts: &HashMap<Key, Vec<&Attempt>>) {
    let done: HashMap<Key, &Done> = records.done.iter().map(|done| ((done.task, done.step), done)).collect();
    assert!(!records.edges.is_empty());
    for edge in &records.edges {
        let (parent, key) = (done[&(edge.task, edge.parent)], (edge.task, edge.child));
        let runs = attempts.get(&key).into_iter().flatten().map(|attempt| attempt.started);
        let first = runs.chain([done[&key].claimed]).min().unwrap();
        assert!(first >= parent.ended, "{} ran before its parent {} had succeeded", named(key), edge.parent);
    }
}

/// No worker's clock affects the store. SQLite uses the host's clock, so a worker that is an hour ahead moves the
/// time of the store; but time never goes back.
fn clocks_are_the_stores(records: &Records, has_server: bool, took: Duration) {
    let slack = if has_server { 0 } else { HOUR_MICROS };
    let begun = records.now - i64::try_from(took.as_micros()).unwrap() - slack - 5 * SECOND_MICROS;
    for done in &records.done {
        let name = named((done.task, done.step));
        assert!(begun <= done.created, "{name} was made at {}, before {begun}", done.created);
        assert!(
            done.created <= done.claimed && done.claimed <= done.ended && done.ended <= records.now,
            "{name}"
        );
    }
    assert!(records.done.is_sorted_by_key(|done| done.ended), "time went back");
}

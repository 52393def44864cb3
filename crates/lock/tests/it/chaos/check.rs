//! The checks after a run.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use crate::chaos::faults::Crash;
use crate::chaos::resource::{AcceptedWrite, Grant};

/// The notes of the processes.
#[derive(Default)]
pub(crate) struct Notes {
    granted: Vec<Note>,
    lost: Vec<Note>,
    taken: u64,
    stale: u64,
    failed: u64,
}

struct Note {
    key: String,
    token: i64,
    /// The time in microseconds since 1970.
    at: i64,
    /// The delay in microseconds with which the process was woken around that time.
    late: i64,
}

impl Notes {
    pub(crate) fn read(logs: &Path) -> Self {
        let mut notes = Self::default();
        for log in std::fs::read_dir(logs).unwrap() {
            let text = std::fs::read_to_string(log.unwrap().path()).unwrap();
            for line in text.lines() {
                notes.take(line);
            }
        }
        notes
    }

    /// Returns whether the notes show everything that a run must show. Processes may still write to them.
    pub(crate) fn show_all(logs: &Path) -> bool {
        let texts: Vec<_> =
            std::fs::read_dir(logs).unwrap().map(|log| std::fs::read(log.unwrap().path()).unwrap()).collect();
        let begins = |what: &str| {
            texts
                .iter()
                .any(|text| text.split(|byte| *byte == b'\n').any(|line| line.starts_with(what.as_bytes())))
        };
        begins("stale") && begins("lost")
    }

    fn take(&mut self, line: &str) {
        // A killed process may have left an incomplete line.
        let words: Vec<&str> = line.split(' ').collect();
        let [what, token, at, late] = words[..] else { return };
        let (what, key) = what.split_once('-').unwrap_or((what, ""));
        let note = || Note {
            key: key.to_owned(),
            token: token.parse().unwrap(),
            at: at.parse().unwrap(),
            late: late.parse().unwrap(),
        };
        match what {
            "granted" => self.granted.push(note()),
            "lost" => self.lost.push(note()),
            "taken" => self.taken += 1,
            "stale" => self.stale += 1,
            "failed" => self.failed += 1,
            _ => {}
        }
    }
}

/// Checks all properties, and returns the observed effects of the faults.
pub(crate) fn check(
    has_server: bool,
    notes: &Notes,
    grants: &[Grant],
    crashes: &[Crash],
    events: &[AcceptedWrite],
) -> Vec<(u64, &'static str)> {
    let known = RecordedGrants::new(grants, crashes);
    tokens_are_granted_once(notes, grants, &known);
    writes_come_in_the_order_of_tokens(events, &known);
    let excused = holders_are_told_in_time(notes, grants);
    println!(
        "  {} grants, {} of them known to a process, {} writes taken; {} losses by processes that did not get to run; \
         {} acquisitions given up",
        grants.len(),
        notes.granted.len(),
        notes.taken,
        excused,
        notes.failed,
    );
    let lost_count = notes.lost.len() as u64;
    let mut seen =
        vec![(notes.stale, "stale writes refused"), (lost_count, "holders notified of their lost lock")];
    // A running holder loses its lock only if the store cannot be reached.
    if has_server {
        seen.push((lost_count - excused, "of them before the next grant"));
    }
    seen
}

/// The grants that the store has recorded, and the crashes that may have lost others.
struct RecordedGrants<'a> {
    grants: BTreeSet<(&'a str, i64)>,
    crashes: &'a [Crash],
}

impl<'a> RecordedGrants<'a> {
    fn new(grants: &'a [Grant], crashes: &'a [Crash]) -> Self {
        Self { grants: grants.iter().map(|grant| (grant.key.as_str(), grant.token)).collect(), crashes }
    }

    /// Returns whether the store has recorded the grant, or may have lost it in a crash. A token is the time of its
    /// grant.
    fn explains(&self, key: &str, token: i64) -> bool {
        self.grants.contains(&(key, token)) || self.crashes.iter().any(|crash| crash.may_lose(token))
    }
}

/// Checks that the store never granted a token twice, nor a lower one after a higher one, and that it granted every
/// token that a process held.
fn tokens_are_granted_once(notes: &Notes, grants: &[Grant], known: &RecordedGrants<'_>) {
    let mut last: HashMap<&str, i64> = HashMap::new();
    for grant in grants {
        let before = last.insert(&grant.key, grant.token).unwrap_or(0);
        assert!(grant.token > before, "{grant:?} after {before}");
    }
    let mut held = BTreeSet::new();
    for Note { key, token, .. } in &notes.granted {
        assert!(held.insert((key, token)), "two processes hold {key} with {token}");
        assert!(known.explains(key, *token), "{key} was never granted with {token}");
    }
}

/// Checks that the resource accepted no write of a stale holder, and no writes of two processes with the same token.
fn writes_come_in_the_order_of_tokens(events: &[AcceptedWrite], known: &RecordedGrants<'_>) {
    let mut last: BTreeMap<&str, &AcceptedWrite> = BTreeMap::new();
    for event in events {
        assert!(known.explains(&event.key, event.token), "{event:?} was never granted");
        let Some(before) = last.insert(&event.key, event) else { continue };
        assert!(event.token >= before.token, "{event:?} after {before:?}");
        if event.token == before.token {
            assert_eq!(
                event.process, before.process,
                "two processes hold the same token: {event:?} after {before:?}"
            );
        }
    }
}

/// Checks that each holder that lost a lock was notified before the next grant, by the store's clock. It excuses a
/// process that was not running, because such a process cannot be notified in time. Returns the number of excused
/// losses.
fn holders_are_told_in_time(notes: &Notes, grants: &[Grant]) -> u64 {
    let mut excused = 0;
    for lost in &notes.lost {
        let next = grants.iter().find(|grant| grant.key == lost.key && grant.token > lost.token);
        let Some(late_by) = next.map(|next| lost.at - next.at).filter(|late_by| *late_by >= 0) else {
            continue;
        };
        assert!(
            late_by <= lost.late,
            "the holder of {} with token {} was notified {late_by} µs after the next grant, but its own clock was late by only {} µs",
            lost.key,
            lost.token,
            lost.late
        );
        excused += 1;
    }
    excused
}

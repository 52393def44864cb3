//! Tests of compactions and snapshots from the view of one device.

use super::bench::{Bench, add, id};
use super::*;
use crate::machine::Change;
use crate::{Digest, Snapshot};

const SECOND: u64 = 1_000 * MS;

/// Returns the acceptors to which the device sent a snapshot, with the slot of the snapshot.
fn handed_in(outputs: &[Output]) -> Vec<(NodeId, Slot)> {
    let handed_in = outputs.iter().filter_map(|output| match output {
        Output::Ask { to, ask: Ask::Compact { snapshot } } => Some((*to, snapshot.slot)),
        _ => None,
    });
    handed_in.collect()
}

fn proposes_compaction(bench: &Bench) -> bool {
    let batch = bench.accepted_value().and_then(|value| value.batch());
    let operations = batch.map(|batch| batch.operations).unwrap_or_default();
    operations.iter().any(|operation| matches!(Change::read(&operation.body), Some(Change::Compact { .. })))
}

fn ended(outputs: &[Output]) -> usize {
    outputs.iter().filter(|output| matches!(output, Output::Ended { .. })).count()
}

/// Creates an acceptor's report of the last slot of its snapshot.
fn floor(slot: Slot) -> Tell {
    Tell::Compacted { slot, digest: Digest::default() }
}

fn eager() -> Options {
    Options { compact_slots: 3, ..Options::default() }
}

#[test]
fn who_proposes_anyway_takes_a_compaction_along_and_hands_in_its_snapshot() {
    let mut bench = Bench::with(eager());
    for number in 1..=3 {
        bench.decide(number, add(number), None);
    }
    assert_eq!(bench.device.state().compacted(), Slot(0));
    bench.submit(4);
    assert!(proposes_compaction(&bench));
    let outputs = bench.win();
    assert_eq!((bench.device.state().compacted(), bench.device.state().applied()), (Slot(4), Slot(4)));
    assert_eq!(ended(&outputs), 1, "nobody asked for the compaction: {outputs:?}");
    let to_all: Vec<_> = bench.acceptors.iter().map(|acceptor| (*acceptor, Slot(4))).collect();
    assert_eq!(handed_in(&outputs), to_all);
    assert!(bench.device.has_errands());
    bench.tell(0, floor(Slot(4)));
    bench.tell(1, floor(Slot(4)));
    assert!(!bench.device.has_errands(), "a majority has it");
    let outputs = bench.wait(60 * SECOND);
    let to_last = handed_in(&outputs);
    assert!(!to_last.is_empty() && to_last.iter().all(|(to, _)| *to == bench.acceptors[2]), "{to_last:?}");
    bench.tell(2, floor(Slot(4)));
    assert_eq!(handed_in(&bench.wait(600 * SECOND)), []);
}

#[test]
fn bytes_count_as_slots_do() {
    let mut bench = Bench::with(Options { compact_bytes: 500, ..Options::default() });
    bench.decide(1, add(1), None);
    bench.submit(2);
    assert!(!proposes_compaction(&bench));
    bench.win();
    bench.decide(3, add(3), None);
    bench.submit(4);
    assert!(proposes_compaction(&bench) || bench.device.state().compacted() > Slot(0));
}

#[test]
fn who_has_nothing_to_propose_leaves_it_to_others_for_a_while() {
    let mut bench = Bench::with(eager());
    for number in 1..=3 {
        bench.lose(number, &add(number));
    }
    let nothing = |outputs: &[Output]| {
        !outputs.iter().any(|output| matches!(output, Output::Ask { ask: Ask::Prepare { .. }, .. }))
    };
    assert!(nothing(&bench.wait(3 * SECOND)));
    assert!(!nothing(&bench.wait(6 * SECOND)), "nobody has done it");

    let mut bench = Bench::with(eager());
    for number in 1..=3 {
        bench.lose(number, &add(number));
    }
    bench.wait(3 * SECOND);
    bench.lose(4, &Change::Compact { since: Slot(3) });
    assert_eq!(bench.device.state().compacted(), Slot(4));
    for acceptor in 0..3 {
        bench.tell(acceptor, floor(Slot(4)));
    }
    let outputs = bench.wait(60 * SECOND);
    assert!(nothing(&outputs) && handed_in(&outputs).is_empty(), "somebody has: {outputs:?}");
}

#[test]
fn a_compaction_that_others_were_faster_with_is_dropped_without_a_slot() {
    let mut bench = Bench::with(eager());
    for number in 1..=3 {
        bench.lose(number, &add(number));
    }
    bench.wait(9 * SECOND);
    assert_eq!(bench.device.pending().count(), 1);
    let outputs = bench.lose(4, &Change::Compact { since: Slot(3) });
    assert_eq!((bench.device.pending().count(), ended(&outputs)), (0, 0));
}

#[test]
fn who_is_full_is_handed_a_snapshot_of_what_is_decided_and_then_a_compaction_follows() {
    let mut bench = Bench::new();
    bench.decide(1, add(1), None);
    bench.submit(2);
    let full = || Tell::Refused { slot: Some(Slot(2)), why: Refusal::Full };
    bench.tell(1, full());
    bench.tell(2, full());
    let relieved = handed_in(&bench.wait(2 * SECOND));
    let expected: Vec<_> = bench.acceptors[1..].iter().map(|acceptor| (*acceptor, Slot(1))).collect();
    assert_eq!(relieved, expected, "once, and not to who has room");
    // The acceptors have room now.
    bench.tell(1, floor(Slot(1)));
    bench.tell(2, floor(Slot(1)));
    bench.win();
    if bench.device.state().compacted() == Slot(0) {
        bench.win();
    }
    assert!(bench.device.state().compacted() > Slot(1), "all agree about this one");
}

#[test]
fn a_letter_that_finds_no_room_is_no_reason_to_compact() {
    let mut bench = Bench::new();
    bench.decide(1, add(1), None);
    bench.tell(0, Tell::Refused { slot: None, why: Refusal::Full });
    assert_eq!(handed_in(&bench.wait(60 * SECOND)), []);
    assert_eq!(bench.device.state().compacted(), Slot(0));
}

#[test]
fn whoever_has_the_snapshot_hands_it_in_where_it_is_missing_if_nobody_else_does() {
    let mut bench = Bench::new();
    bench.lose(1, &Change::Compact { since: Slot(0) });
    bench.lose(2, &add(2));
    bench.tell(0, floor(Slot(1)));
    bench.tell(1, floor(Slot(1)));
    bench.tell(2, floor(Slot(0)));
    assert_eq!(handed_in(&bench.wait(3 * SECOND)), [], "whoever had it decided goes first");
    let to_last = handed_in(&bench.wait(600 * SECOND));
    assert!((3..20).contains(&to_last.len()), "again and again, more and more seldom: {to_last:?}");
    assert!(to_last.iter().all(|handed_in| *handed_in == (bench.acceptors[2], Slot(1))), "{to_last:?}");
    bench.tell(2, floor(Slot(1)));
    assert_eq!(handed_in(&bench.wait(600 * SECOND)), []);
}

#[test]
fn if_nobody_has_the_snapshot_that_is_missing_another_compaction_makes_one() {
    let mut bench = Bench::new();
    bench.lose(1, &Change::Compact { since: Slot(0) });
    bench.lose(2, &add(2));
    // A restart after the second slot.
    let submitted = Record::Ended { id: id(77) };
    let mut bench = bench.restarted_with(submitted);
    bench.tell(0, floor(Slot(0)));
    let outputs = bench.wait(30 * SECOND);
    assert_eq!(handed_in(&outputs), []);
    bench.win();
    assert_eq!(bench.device.state().compacted(), Slot(3));
}

#[test]
fn a_restarted_device_still_has_the_snapshot_it_stored_last() {
    let mut bench = Bench::new();
    bench.lose(1, &Change::Compact { since: Slot(0) });
    let mut bench = bench.restarted_with(Record::Ended { id: id(77) });
    bench.tell(1, floor(Slot(0)));
    let handed_in = handed_in(&bench.wait(10 * SECOND));
    assert_eq!(handed_in.first(), Some(&(bench.acceptors[1], Slot(1))));
}

#[test]
fn a_snapshot_is_agreed_about_by_those_who_decide_now() {
    let mut bench = Bench::new();
    let bytes = bench.device.state().snapshot().bytes;
    let snapshot = Snapshot { slot: Slot(50), bytes };
    let said = || Tell::Compacted { slot: Slot(50), digest: snapshot.digest() };
    let is_asked_for = |outputs: &[Output]| {
        outputs.iter().any(|output| matches!(output, Output::Ask { ask: Ask::Snapshot, .. }))
    };
    assert!(!is_asked_for(&bench.tell(0, said())));
    bench.lose(1, &Change::RemoveAcceptor(bench.acceptors[0]));
    assert!(!is_asked_for(&bench.tell(1, said())), "the first one does not count any more");
    bench.tell(1, Tell::Snapshot(snapshot.clone()));
    assert_eq!(bench.device.state().applied(), Slot(1));
    assert!(is_asked_for(&bench.tell(2, said())));
    bench.tell(2, Tell::Snapshot(snapshot.clone()));
    assert_eq!(bench.device.state().applied(), Slot(50));
}

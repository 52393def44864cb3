//! Tests of compactions and snapshots from the view of one device.

use holdoff_paxos::slot::PromiseReply;

use super::bench::{Bench, add, id};
use super::*;
use crate::machine::CouncilChange;
use crate::{AcceptorReport, AcceptorRequest, CouncilSnapshot};

const SECOND: u64 = 1_000 * MS;

/// Returns the acceptors to which the device sent a snapshot, with the slot of the snapshot.
fn snapshots_sent(outputs: &[Output]) -> Vec<(NodeId, Slot)> {
    let snapshots_sent = outputs.iter().filter_map(|output| match output {
        Output::Send { to, request: AcceptorRequest::Compact { snapshot, .. } } => Some((*to, snapshot.slot)),
        _ => None,
    });
    snapshots_sent.collect()
}

fn proposes_compaction(bench: &Bench) -> bool {
    let batch = bench.accepted_value().and_then(|value| value.batch());
    let operations = batch.map(|batch| batch.operations).unwrap_or_default();
    operations
        .iter()
        .any(|operation| matches!(CouncilChange::read(&operation.body), Some(CouncilChange::Compact { .. })))
}

fn ended(outputs: &[Output]) -> usize {
    outputs.iter().filter(|output| matches!(output, Output::Ended { .. })).count()
}

/// Creates an acceptor's report of the last slot of its snapshot.
fn floor(slot: Slot) -> AcceptorReply {
    AcceptorReply::Report(AcceptorReport { floor: slot, ..AcceptorReport::default() })
}

fn eager() -> Options {
    Options { compact_slots: 3, ..Options::default() }
}

#[test]
fn a_proposing_device_adds_a_due_compaction_and_sends_its_snapshot() {
    let mut bench = Bench::with(eager());
    for number in 1..=3 {
        bench.decide(number, add(number), None);
    }
    assert_eq!(bench.device.state().compacted(), Slot(0));
    bench.submit(4);
    assert!(proposes_compaction(&bench));
    let outputs = bench.win();
    assert_eq!((bench.device.state().compacted(), bench.device.state().applied()), (Slot(4), Slot(4)));
    assert_eq!(ended(&outputs), 1, "no caller requested the compaction: {outputs:?}");
    let to_all: Vec<_> = bench.acceptors.iter().map(|acceptor| (*acceptor, Slot(4))).collect();
    assert_eq!(snapshots_sent(&outputs), to_all);
    assert!(bench.device.has_undelivered());
    bench.reply(0, floor(Slot(4)));
    bench.reply(1, floor(Slot(4)));
    assert!(!bench.device.has_undelivered(), "a majority has the snapshot");
    let outputs = bench.wait(60 * SECOND);
    let to_last = snapshots_sent(&outputs);
    assert!(!to_last.is_empty() && to_last.iter().all(|(to, _)| *to == bench.acceptors[2]), "{to_last:?}");
    bench.reply(2, floor(Slot(4)));
    assert_eq!(snapshots_sent(&bench.wait(600 * SECOND)), []);
}

#[test]
fn a_compaction_is_due_after_many_bytes() {
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
fn an_idle_device_leaves_a_compaction_to_others_first() {
    let mut bench = Bench::with(eager());
    for number in 1..=3 {
        bench.lose(number, &add(number));
    }
    let nothing = |outputs: &[Output]| {
        !outputs
            .iter()
            .any(|output| matches!(output, Output::Send { request: AcceptorRequest::Prepare { .. }, .. }))
    };
    assert!(nothing(&bench.wait(3 * SECOND)));
    assert!(!nothing(&bench.wait(6 * SECOND)), "no other device has compacted the council");

    let mut bench = Bench::with(eager());
    for number in 1..=3 {
        bench.lose(number, &add(number));
    }
    bench.wait(3 * SECOND);
    bench.lose(4, &CouncilChange::Compact { since: Slot(3) });
    assert_eq!(bench.device.state().compacted(), Slot(4));
    for acceptor in 0..3 {
        bench.reply(acceptor, floor(Slot(4)));
    }
    let outputs = bench.wait(60 * SECOND);
    assert!(
        nothing(&outputs) && snapshots_sent(&outputs).is_empty(),
        "another device has compacted the council: {outputs:?}"
    );
}

#[test]
fn a_compaction_that_another_device_made_is_dropped() {
    let mut bench = Bench::with(eager());
    for number in 1..=3 {
        bench.lose(number, &add(number));
    }
    bench.wait(9 * SECOND);
    assert_eq!(bench.device.pending().count(), 1);
    let outputs = bench.lose(4, &CouncilChange::Compact { since: Slot(3) });
    assert_eq!((bench.device.pending().count(), ended(&outputs)), (0, 0));
}

#[test]
fn a_full_council_decides_a_compaction_first() {
    let mut bench = Bench::new();
    bench.decide(1, add(1), None);
    bench.submit(2);
    bench.promise(0);
    bench.promise(1);
    assert!(bench.accepted_value().is_some() && !proposes_compaction(&bench));
    for acceptor in 0..2 {
        let why = RequestRefusal::Full;
        bench.reply(acceptor, AcceptorReply::Refused { slot: Some(Slot(2)), why });
    }
    let ballot = loop {
        match bench.prepared() {
            Some(ballot) if ballot.attempt() > 1 => break ballot,
            _ => drop(bench.wait_out()),
        }
    };
    for acceptor in 0..2 {
        let reply = PromiseReply::Promise { ballot, accepted: None };
        let (slot, latest) = (Slot(2), Slot(1));
        bench.reply(acceptor, AcceptorReply::Promise { slot, reply, announced: Vec::new(), latest });
    }
    let value = bench.accepted_value().expect("the device proposes the compaction");
    assert!(proposes_compaction(&bench) && value.compacts);
    assert_eq!(value.batch().unwrap().operations.len(), 1, "no other operation has room");
    bench.accept_all();
    assert_eq!(bench.device.state().compacted(), Slot(2));
    assert_eq!(bench.device.pending().count(), 1);
}

#[test]
fn refused_mail_does_not_start_a_compaction() {
    let mut bench = Bench::new();
    bench.decide(1, add(1), None);
    bench.reply(0, AcceptorReply::Refused { slot: None, why: RequestRefusal::Full });
    assert_eq!(snapshots_sent(&bench.wait(60 * SECOND)), []);
    assert_eq!(bench.device.state().compacted(), Slot(0));
}

#[test]
fn any_device_sends_a_missing_snapshot_after_a_while() {
    let mut bench = Bench::new();
    bench.lose(1, &CouncilChange::Compact { since: Slot(0) });
    bench.lose(2, &add(2));
    bench.reply(0, floor(Slot(1)));
    bench.reply(1, floor(Slot(1)));
    bench.reply(2, floor(Slot(0)));
    assert_eq!(
        snapshots_sent(&bench.wait(3 * SECOND)),
        [],
        "the device that submitted the compaction sends first"
    );
    let to_last = snapshots_sent(&bench.wait(600 * SECOND));
    assert!(
        (3..20).contains(&to_last.len()),
        "the device sends the snapshot repeatedly, with growing intervals: {to_last:?}"
    );
    assert!(
        to_last.iter().all(|snapshots_sent| *snapshots_sent == (bench.acceptors[2], Slot(1))),
        "{to_last:?}"
    );
    bench.reply(2, floor(Slot(1)));
    assert_eq!(snapshots_sent(&bench.wait(600 * SECOND)), []);
}

#[test]
fn a_lost_snapshot_causes_another_compaction() {
    let mut bench = Bench::new();
    bench.lose(1, &CouncilChange::Compact { since: Slot(0) });
    bench.lose(2, &add(2));
    // A restart after the second slot.
    let submitted = Record::Ended { id: id(77) };
    let mut bench = bench.restarted_with(submitted);
    bench.reply(0, floor(Slot(0)));
    let outputs = bench.wait(30 * SECOND);
    assert_eq!(snapshots_sent(&outputs), []);
    bench.win();
    assert_eq!(bench.device.state().compacted(), Slot(3));
}

#[test]
fn a_restarted_device_has_its_last_snapshot() {
    let mut bench = Bench::new();
    bench.lose(1, &CouncilChange::Compact { since: Slot(0) });
    let mut bench = bench.restarted_with(Record::Ended { id: id(77) });
    bench.reply(1, floor(Slot(0)));
    let snapshots_sent = snapshots_sent(&bench.wait(10 * SECOND));
    assert_eq!(snapshots_sent.first(), Some(&(bench.acceptors[1], Slot(1))));
}

#[test]
fn a_snapshot_needs_a_majority_of_the_current_acceptors() {
    let mut bench = Bench::new();
    let bytes = bench.device.state().snapshot().bytes;
    let snapshot = CouncilSnapshot { slot: Slot(50), bytes };
    let report = AcceptorReport { floor: Slot(50), digest: snapshot.digest(), ..AcceptorReport::default() };
    let report = || AcceptorReply::Report(report);
    let requests_snapshot = |outputs: &[Output]| {
        outputs
            .iter()
            .any(|output| matches!(output, Output::Send { request: AcceptorRequest::Snapshot { .. }, .. }))
    };
    assert!(!requests_snapshot(&bench.reply(0, report())));
    bench.lose(1, &CouncilChange::RemoveAcceptor(bench.acceptors[0]));
    assert!(!requests_snapshot(&bench.reply(1, report())), "the report of a removed acceptor does not count");
    let reply = || AcceptorReply::Snapshot { snapshot: snapshot.clone(), certificate: Vec::new() };
    bench.reply(1, reply());
    assert_eq!(bench.device.state().applied(), Slot(1));
    assert!(requests_snapshot(&bench.reply(2, report())));
    bench.reply(2, reply());
    assert_eq!(bench.device.state().applied(), Slot(50));
}

#[test]
fn every_device_endorses_a_compaction_where_its_endorsement_is_missing() {
    let mut bench = Bench::new();
    bench.reply(0, floor(Slot(0)));
    let endorsed = |outputs: &[Output]| -> Vec<_> {
        let endorsed = outputs.iter().filter_map(|output| match output {
            Output::Send { to, request: AcceptorRequest::Endorse(it) } => Some((*to, it.slot, it.digest)),
            _ => None,
        });
        endorsed.collect()
    };
    let outputs = bench.lose(1, &CouncilChange::Compact { since: Slot(0) });
    let digest = bench.device.state().snapshot().digest();
    assert_eq!(endorsed(&outputs), [(bench.acceptors[0], Slot(1), digest)]);
    bench.lose(2, &add(2));
    assert_eq!(endorsed(&bench.reply(1, floor(Slot(0)))), [(bench.acceptors[1], Slot(1), digest)]);
    let report = AcceptorReport { endorsed: digest, ..AcceptorReport::default() };
    assert_eq!(endorsed(&bench.reply(1, AcceptorReply::Report(report))), []);
    assert_eq!(endorsed(&bench.reply(1, floor(Slot(1)))), []);
}

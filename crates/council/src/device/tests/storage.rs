//! Records that are on disk before their effect is visible, and outcomes that are forgotten.

use super::bench::{Bench, add, id};
use super::*;
use crate::machine::CouncilChange;
use crate::{AcceptorReport, AcceptorRequest, CouncilSnapshot, PublicKey};

fn submit(number: u64, mail: Option<Mail>) -> Input<CouncilChange> {
    Input::Submit { id: id(number), change: add(number), mail, deadline_us: u64::MAX }
}

fn requests(outputs: &[Output]) -> usize {
    let requests = |output: &&Output| {
        matches!(
            output,
            Output::Send { request: AcceptorRequest::Prepare { .. } | AcceptorRequest::Accept { .. }, .. }
        )
    };
    outputs.iter().filter(requests).count()
}

/// Returns the outputs that leave at once, and those that wait for the records of a step.
fn released(mut step: DeviceStep<CouncilChange>) -> (Vec<Output>, Vec<Output>) {
    let at_once = step.take_at_once();
    let Ok((held, _)) = step.store(|_| Ok::<_, std::convert::Infallible>(()));
    (at_once, held)
}

/// Returns the number of requests sent at once, and of requests sent after the records are stored.
fn sent_requests(bench: &mut Bench, input: Input<CouncilChange>) -> (usize, usize) {
    let (at_once, held) = released(bench.unstored(input));
    (requests(&at_once), requests(&held))
}

#[test]
fn a_ballot_is_stored_before_it_is_sent() {
    let mut bench = Bench::not_started();
    let step = bench.unstored(submit(1, None));
    assert_eq!(requests(step.outputs_at_once()), 0);
    let is_attempt = |record: &Record<_>| matches!(record, Record::Attempt(_));
    assert!(step.records().iter().any(is_attempt), "{:?}", step.records());
}

#[test]
fn a_reserved_ballot_is_sent_at_once() {
    let mut bench = Bench::new();
    assert_eq!(sent_requests(&mut bench, submit(1, None)), (3, 0));
}

#[test]
fn a_ballot_of_an_unstored_reserve_waits() {
    let mut bench = Bench::not_started();
    drop(bench.unstored(submit(1, None)));
    // The disk has not finished when another device wins the slot and the next slot is due.
    let others = bench.value_of_another(9);
    let steps = [0, 1].map(|acceptor| bench.unstored_vote(acceptor, 7, &others));
    let at_once: usize = steps.iter().map(|step| requests(step.outputs_at_once())).sum();
    assert_eq!((bench.device.state().applied(), at_once), (Slot(1), 0));
}

#[test]
fn an_operation_with_mail_is_stored_before_it_is_sent() {
    let mut bench = Bench::new();
    let mail = Mail { to: bench.device.key(), message: "welcome".into() };
    assert_eq!(sent_requests(&mut bench, submit(1, Some(mail))), (0, 3));
}

#[test]
fn a_restarted_device_skips_reserved_ballots() {
    let mut bench = Bench::not_started();
    let step = bench.unstored(Input::Tick);
    let reserved = step.records().iter().find(|record| matches!(record, Record::Reserved(_)));
    let Some(&Record::Reserved(reserve)) = reserved else { panic!("the device reserved no ballots") };
    let mut bench = bench.restarted_with(Record::Reserved(reserve));
    bench.submit(1);
    assert_eq!(bench.prepared().map(holdoff_paxos::Ballot::attempt), Some(reserve.attempt + 1));
}

#[test]
fn a_decision_is_reported_at_once_and_again_after_a_crash() {
    let mut bench = Bench::new();
    bench.submit(1);
    bench.promise(0);
    bench.promise(1);
    let value = bench.accepted_value().expect("the device proposes a value");
    let steps = bench.accept_all_unstored();
    let committed = Output::Ended { id: id(1), outcome: Outcome::Committed(Slot(1)) };
    assert!(steps.iter().any(|step| step.outputs_at_once().contains(&committed)));
    assert!(steps.iter().all(|step| !step.is_urgent()), "the records of a decision are not urgent");
    // None of the records was stored.
    let submitted = Record::Submitted { id: id(1), change: add(1), mail: None, birth_slot: Slot(0) };
    let mut bench = Bench::new().restarted_with(submitted);
    bench.vote(0, 1, &value);
    let outputs = bench.vote(1, 1, &value);
    assert!(outputs.contains(&committed), "{outputs:?}");
}

#[test]
fn a_withdrawal_is_stored_before_it_is_reported() {
    let mut bench = Bench::new();
    bench.submit(1);
    bench.promise(0);
    bench.promise(1);
    // The requested state already holds, so the device sends the operation to no other node and ends it at once.
    bench.accept_all();
    let again = Input::Submit { id: id(2), change: add(1), mail: None, deadline_us: u64::MAX };
    let step = bench.unstored(again);
    let is_end = |output: &Output| matches!(output, Output::Ended { .. });
    let (at_once, held) = released(step);
    assert!(!at_once.iter().any(is_end), "{at_once:?}");
    assert!(held.iter().any(is_end), "{held:?}");
}

#[test]
fn an_operation_that_is_submitted_again_before_its_end_is_on_disk_has_the_same_outcome() {
    let mut bench = Bench::new();
    bench.submit(1);
    bench.promise(0);
    bench.promise(1);
    bench.accept_all();
    // The requested state already holds: the device ends the operation by itself.
    let submit = || Input::Submit { id: id(2), change: add(1), mail: None, deadline_us: u64::MAX };
    let is_end = |output: &Output| {
        matches!(output, Output::Ended { outcome: Outcome::NotCommitted(NotCommitted::AlreadySatisfied), .. })
    };
    for _ in 0..2 {
        let (at_once, held) = released(bench.unstored(submit()));
        assert!(!at_once.iter().any(is_end) && held.iter().any(is_end), "{held:?}");
        assert_eq!(bench.device.pending().count(), 0, "no second operation begins");
    }
}

#[test]
fn a_device_that_lost_slots_does_not_revalidate_against_an_older_state() {
    // In the restored state the device is not a member any more, but its operation was submitted after it had
    // become a member again.
    let mut bench = Bench::new();
    let me = bench.device.key();
    bench.commit_change(1, CouncilChange::Remove { key: me });
    let submitted = Record::Submitted { id: id(5), change: add(5), mail: None, birth_slot: Slot(3) };
    let mut bench = bench.restarted_with(submitted);
    let outputs = bench.step(Input::Tick);
    assert!(!outputs.iter().any(|output| matches!(output, Output::Ended { .. })), "{outputs:?}");
    assert_eq!(bench.device.pending().collect::<Vec<_>>(), [id(5)]);
}

#[test]
fn mail_is_posted_when_a_majority_of_the_current_acceptors_has_it() {
    let mut bench = Bench::new();
    let mail = Mail { to: PublicKey::from_bytes([9; 32]), message: "welcome".into() };
    bench.decide(1, add(1), Some(mail));
    assert_eq!(bench.device.unposted_mail().count(), 1);
    bench.reply(0, AcceptorReply::Posted { id: id(1) });
    bench.lose(2, &CouncilChange::RemoveAcceptor(bench.acceptors[0]));
    bench.reply(1, AcceptorReply::Posted { id: id(1) });
    bench.reply(1, AcceptorReply::Posted { id: id(1) });
    assert_eq!(bench.device.unposted_mail().count(), 1, "only one of the current acceptors has the mail");
    bench.reply(2, AcceptorReply::Posted { id: id(1) });
    assert_eq!(bench.device.unposted_mail().count(), 0);
}

/// Installs the current state as a snapshot this many slots later.
fn passes(bench: &mut Bench, slots: u64) -> Vec<Output> {
    let bytes = bench.device.state().snapshot().bytes;
    let snapshot = CouncilSnapshot { slot: Slot(bench.device.state().applied().0 + slots), bytes };
    let (floor, digest) = (snapshot.slot, snapshot.digest());
    let report = AcceptorReport { floor, digest, ..AcceptorReport::default() };
    for acceptor in 0..2 {
        bench.reply(acceptor, AcceptorReply::Report(report));
    }
    bench.reply(0, AcceptorReply::Snapshot { snapshot, certificate: Vec::new() })
}

#[test]
fn an_operation_with_a_forgotten_outcome_is_unknown() {
    let unknown = Output::Ended { id: id(1), outcome: Outcome::Unknown };
    let mut bench = Bench::new();
    bench.submit(1);
    let outputs = passes(&mut bench, crate::SignedOperation::LIFETIME - 1);
    assert!(!outputs.contains(&unknown), "the outcome would still be remembered");
    assert!(bench.device.pending().any(|pending| pending == id(1)));

    let mut bench = Bench::new();
    bench.submit(1);
    let outputs = passes(&mut bench, crate::SignedOperation::LIFETIME + 1);
    assert!(outputs.contains(&unknown), "{outputs:?}");
    assert!(bench.device.pending().all(|pending| pending != id(1)));
    assert_eq!(bench.device.counts().unknown, 1);
}

#[test]
fn an_expired_operation_is_submitted_again() {
    let mut bench = Bench::new();
    let change = Record::Submitted { id: id(1), change: add(1), mail: None, birth_slot: Slot(0) };
    let mut old = bench.restarted_with(change);
    let bytes = old.device.state().snapshot().bytes;
    old.device.restore(Record::Snapshot(CouncilSnapshot { slot: Slot(20_000), bytes }));
    bench = old;
    // This device has applied every slot up to here, and the operation was in none of them.
    bench.step(Input::Tick);
    let outputs = bench.win();
    let done = Output::Ended { id: id(1), outcome: Outcome::Committed(Slot(20_001)) };
    assert!(outputs.contains(&done), "{outputs:?}");
}

#[test]
fn announcements_are_limited_in_size() {
    let options = Options { batch: 2_000, pending: 2_000, ..Options::default() };
    let mut bench = Bench::with(options);
    let long = |number: u64| match add(number) {
        CouncilChange::Add { key, .. } => CouncilChange::Add { key, name: "n".repeat(200) },
        other => other,
    };
    let submit =
        |number| Input::Submit { id: id(number), change: long(number), mail: None, deadline_us: u64::MAX };
    for number in 0..600 {
        bench.step(submit(number));
    }
    // The requested promise is refused; the next attempt announces all operations that are pending by then.
    bench.refuse_promises(7);
    let outputs = bench.wait_out();
    let announced = outputs.iter().find_map(|output| match output {
        Output::Send { request: AcceptorRequest::Prepare { announce, .. }, .. } => Some(announce.clone()),
        _ => None,
    });
    let announced = announced.expect("the device starts another attempt");
    let bytes: usize = announced.iter().map(|operation| super::super::pending::weight(&operation.body)).sum();
    let each = bytes / announced.len();
    let most = super::super::pending::BATCH_BYTES;
    assert!(bytes <= most && bytes + each > most, "{} operations of {bytes} bytes", announced.len());
}

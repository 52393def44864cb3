//! Tests of one device. Each test plays the acceptors by hand.

mod bench;
mod implied_decisions;
mod storage;
mod upkeep;

use bench::{Bench, add, id};
use holdoff_paxos::Ballot;
use holdoff_testbed::fault::inject;

use super::*;
use crate::council_acceptor::MAX_ATTEMPT_JUMP;
use crate::device::CouncilFault;
use crate::machine::CouncilChange;
use crate::{AcceptorReport, AcceptorRequest, RequestRefusal, Slot};

const MS: u64 = 1_000;

#[test]
fn the_next_attempt_exceeds_the_preempting_ballot() {
    let mut bench = Bench::new();
    bench.submit(1);
    bench.refuse_promises(41);
    bench.wait_out();
    assert_eq!(bench.prepared().expect("the device starts another attempt").attempt(), 42);
}

#[test]
fn a_preempted_device_waits_at_least_two_round_trips() {
    for roll in [0, u32::MAX / 3, u32::MAX] {
        let mut bench = Bench::new();
        bench.roll = roll;
        bench.submit(1);
        bench.now_us += 50 * MS;
        bench.refuse_promises(7);
        let waits_us = bench.device.wake_at() - bench.now_us;
        assert!(waits_us >= 100 * MS, "{waits_us}");
        assert!(waits_us <= 200 * MS, "{waits_us}");
    }
}

#[test]
fn retry_times_are_decorrelated() {
    let waits = (0..1_000_u32).map(|number| {
        let mut bench = Bench::new();
        bench.roll = number.wrapping_mul(0x9e37_79b9);
        bench.submit(1);
        bench.now_us += 50 * MS;
        bench.refuse_promises(7);
        bench.device.wake_at() - bench.now_us
    });
    let mut waits: Vec<_> = waits.collect();
    waits.sort_unstable();
    // The waits are spread over the whole window: no tenth of it holds much more than a tenth of the waits.
    let (low, high) = (waits[0], waits[999]);
    assert!(high - low > 45 * MS, "{low} to {high}");
    for tenth in 0..10 {
        let from = low + (high - low) * tenth / 10;
        let inside = waits.iter().filter(|wait| (from..from + (high - low) / 10).contains(*wait)).count();
        assert!((60..=140).contains(&inside), "{inside} of 1000 in tenth {tenth}");
    }
}

#[test]
fn the_answer_timeout_grows_until_a_slow_acceptor_can_be_measured() {
    for roll in [0, u32::MAX] {
        let mut bench = Bench::new();
        bench.roll = roll;
        bench.submit(1);
        while bench.device.counts().retransmissions < 10 {
            bench.wait_out();
        }
        // The device must not repeat the next request sooner, or it could not tell which copy was answered.
        bench.promise(0);
        bench.promise(1);
        let waits_us = bench.device.round.wakes_at_us().expect("the device waits for votes") - bench.now_us;
        assert!((3_000 * MS..=4_000 * MS).contains(&waits_us), "{waits_us}");
        bench.now_us += 3_000 * MS;
        bench.accept_all();
        assert!(bench.device.round_trip_us() > 300 * MS, "the device has measured the round trip");
    }
}

/// Returns whether a learned decision ends a wait and the next slot starts at once.
fn learning_ends_the_waiting() -> bool {
    let mut bench = Bench::new();
    bench.submit(1);
    bench.refuse_promises(7);
    let others = bench.value_of_another(2);
    bench.vote(0, 7, &others);
    let outputs = bench.vote(1, 7, &others);
    outputs.iter().any(|output| matches!(output, Output::Applied(_)))
        && bench.prepared() == Some(Ballot::new(Slot(2), 1, bench.device.id()))
}

#[test]
fn a_waiting_device_processes_messages() {
    assert!(learning_ends_the_waiting());
    assert!(
        !inject(CouncilFault::SleepInTheActor, learning_ends_the_waiting),
        "the injected fault was not found"
    );
}

#[test]
fn an_operation_that_lost_a_slot_is_rebuilt_for_the_next() {
    let mut bench = Bench::new();
    bench.submit(1);
    bench.promise(0);
    bench.promise(1);
    let others = bench.value_of_another(2);
    bench.vote(0, 9, &others);
    bench.vote(1, 9, &others);
    assert_eq!((bench.device.counts().lost_slots, bench.device.pending().count()), (1, 1));
    assert_eq!(bench.prepared(), Some(Ballot::new(Slot(2), 1, bench.device.id())));
}

#[test]
fn an_attempt_ends_if_some_acceptors_refuse_and_the_others_are_silent() {
    let mut bench = Bench::new();
    bench.submit(1);
    bench.promise(0);
    bench.refuse_promise(1, 9);
    assert_eq!(bench.prepared(), None, "the third acceptor may still promise");
    bench.wait_out();
    bench.wait_out();
    assert_eq!(bench.prepared().expect("the device starts another attempt").attempt(), 10);
}

#[test]
fn a_timeout_is_not_committed_before_and_unknown_after_the_operation_was_sent() {
    let mut bench = Bench::new();
    let late = Input::Submit { id: id(1), change: add(1), mail: None, deadline_us: 0 };
    let outputs = bench.step(late);
    let ended = Output::Ended { id: id(1), outcome: Outcome::NotCommitted(NotCommitted::Deadline) };
    assert!(outputs.contains(&ended), "{outputs:?}");

    let mut bench = Bench::new();
    let soon = Input::Submit { id: id(1), change: add(1), mail: None, deadline_us: bench.now_us + MS };
    bench.step(soon);
    bench.now_us += 2 * MS;
    let outputs = bench.step(Input::Tick);
    assert!(outputs.contains(&Output::Ended { id: id(1), outcome: Outcome::Unknown }), "{outputs:?}");
    // The device withdraws the operation. The outcome is final when a slot decides the withdrawal.
    bench.promise(0);
    bench.promise(1);
    let outputs = bench.accept_all();
    assert!(outputs.contains(&ended), "{outputs:?}");
    assert_eq!(bench.device.state().machine().members().len(), 2, "no member was added");
}

#[test]
fn an_invalid_operation_ends_before_it_is_sent() {
    let mut bench = Bench::new();
    let change = CouncilChange::Remove { key: crate::PublicKey::from_bytes([9; 32]) };
    let outputs = bench.step(Input::Submit { id: id(1), change, mail: None, deadline_us: u64::MAX });
    let so = Output::Ended { id: id(1), outcome: Outcome::NotCommitted(NotCommitted::AlreadySatisfied) };
    assert_eq!(
        outputs.iter().filter(|output| matches!(output, Output::Ended { .. })).collect::<Vec<_>>(),
        [&so]
    );
    assert_eq!(bench.prepared(), None);
}

#[test]
fn an_unsigned_value_is_ignored() {
    let mut bench = Bench::new();
    bench.submit(1);
    let forged = bench.value_of_another(2).with_a_forged_author();
    bench.promise_with(0, 3, &forged);
    bench.promise_with(1, 3, &forged);
    assert_eq!(bench.device.counts().forged, 2);
    assert_eq!(bench.accepted_value(), None, "a promise with a forged value does not count");
}

#[test]
fn a_refused_request_is_counted_and_the_other_acceptors_decide() {
    let mut bench = Bench::new();
    bench.submit(1);
    bench.reply(2, AcceptorReply::Refused { slot: Some(Slot(1)), why: RequestRefusal::Full });
    bench.promise(0);
    bench.promise(1);
    let outputs = bench.accept_all();
    assert!(outputs.contains(&Output::Ended { id: id(1), outcome: Outcome::Committed(Slot(1)) }));
    assert_eq!(bench.device.counts().refused, 1);
}

#[test]
fn a_lone_writer_needs_one_round_trip_from_its_second_slot_on() {
    let mut bench = Bench::new();
    bench.submit(1);
    bench.promise(0);
    bench.promise(1);
    bench.accept_all();
    bench.submit(2);
    bench.promise(0);
    bench.promise(1);
    bench.accept_all();
    // The device proposes the third operation under the promise that came with the vote for the second.
    bench.submit(3);
    assert!(bench.accepted_value().is_some(), "the device proposes without a prepare phase");
    bench.accept_all();
    assert_eq!(bench.device.state().applied(), Slot(3));
}

#[test]
fn an_operation_submitted_twice_is_applied_once() {
    let mut bench = Bench::new();
    bench.submit(1);
    bench.submit(1);
    bench.promise(0);
    bench.promise(1);
    bench.accept_all();
    let outputs = bench.submit(1);
    assert!(outputs.contains(&Output::Ended { id: id(1), outcome: Outcome::Committed(Slot(1)) }));
    assert_eq!(bench.device.state().applied(), Slot(1));
}

#[test]
fn an_operation_whose_state_already_holds_is_withdrawn_after_a_restart() {
    let mut bench = Bench::new();
    bench.submit(1);
    bench.promise(0);
    bench.promise(1);
    bench.accept_all();
    // An earlier process requested the same change under another id: the requested state already holds.
    let mut bench = bench.restarted_with(Record::Submitted {
        id: id(2),
        change: add(1),
        mail: None,
        birth_slot: Slot(0),
    });
    bench.step(Input::Tick);
    bench.promise(0);
    bench.promise(1);
    let outputs = bench.accept_all();
    let ended = Output::Ended { id: id(2), outcome: Outcome::NotCommitted(NotCommitted::AlreadySatisfied) };
    assert!(outputs.contains(&ended), "{outputs:?}");
}

#[test]
fn a_device_with_an_unused_promise_still_learns_decisions() {
    let mut bench = Bench::new();
    for number in 1..=2 {
        bench.submit(number);
        bench.promise(0);
        bench.promise(1);
        bench.accept_all();
    }
    // Another device won the third slot, and only one of the acceptors that voted can still report it.
    let others = bench.value_of_another(9);
    bench.history(0, 3, &others);
    bench.wait_out();
    assert_eq!(
        bench.prepared().map(Ballot::attempt),
        Some(2),
        "the device proposes the reported value to learn its outcome"
    );
}

#[test]
fn operations_of_a_removed_member_are_never_applied() {
    let bench = Bench::new();
    let other = bench.value_of_another(1).author;
    let operation = bench.operation_of_another(5);
    let state = bench.device.state();
    let mut machine = state.machine().clone();
    assert!(state.check(&mut machine.clone(), &operation, &bench.signer()).is_ok());
    let position = crate::machine::Position { slot: Slot(4), ..state.position() };
    let me = bench.device.key();
    for change in
        [CouncilChange::Remove { key: other }, CouncilChange::Add { key: other, name: "again".to_owned() }]
    {
        let body = machine.build(&change, &position).unwrap();
        machine.apply(&me, &body, &position).unwrap();
    }
    assert!(state.check(&mut machine, &operation, &bench.signer()).is_err());
}

#[test]
fn the_number_of_pending_operations_is_limited() {
    let mut bench = Bench::new();
    for number in 0..256 {
        bench.submit(number);
    }
    let outputs = bench.submit(1_000);
    let ended = Output::Ended { id: id(1_000), outcome: Outcome::NotCommitted(NotCommitted::TooMany) };
    assert!(outputs.contains(&ended), "{outputs:?}");
}

#[test]
fn a_device_raises_the_attempt_of_an_acceptor_that_has_missed_many() {
    let mut bench = Bench::new();
    bench.submit(1);
    bench.refuse_promises(3 * MAX_ATTEMPT_JUMP);
    bench.wait_out();
    let own = bench.prepared().unwrap();
    assert_eq!(own.attempt(), 3 * MAX_ATTEMPT_JUMP + 1);
    for steps in 1..=3 {
        let highest = (steps - 1) * MAX_ATTEMPT_JUMP;
        let why = RequestRefusal::AttemptTooHigh { highest };
        bench.reply(2, AcceptorReply::Refused { slot: Some(Slot(1)), why });
        assert_eq!(bench.prepared().map(Ballot::attempt), Some(steps * MAX_ATTEMPT_JUMP));
    }
    bench.wait_out();
    assert_eq!(bench.prepared(), Some(own), "the device repeats its own ballot");
}

fn sent(outputs: &[Output], is_it: impl Fn(&AcceptorRequest) -> bool) -> Vec<NodeId> {
    let sent = outputs.iter().filter_map(|output| match output {
        Output::Send { to, request } if is_it(request) => Some(*to),
        _ => None,
    });
    sent.collect()
}

#[test]
fn a_device_tells_the_acceptors_who_the_members_are() {
    let mut bench = Bench::new();
    let why = RequestRefusal::UnknownCouncil;
    let outputs = bench.reply(2, AcceptorReply::Refused { slot: None, why });
    let introduced = sent(&outputs, |request| matches!(request, AcceptorRequest::Introduce { .. }));
    assert_eq!(introduced, [bench.acceptors[2]]);

    let is_report = |request: &AcceptorRequest| matches!(request, AcceptorRequest::Access { changes } if changes.len() == 1);
    let outputs = bench.decide(1, add(1), None);
    assert_eq!(sent(&outputs, is_report), bench.acceptors, "at once, to all acceptors");
    let report =
        |slot| AcceptorReply::Report(AcceptorReport { access: Slot(slot), ..AcceptorReport::default() });
    assert_eq!(sent(&bench.reply(1, report(0)), is_report), [bench.acceptors[1]], "it has missed the change");
    assert_eq!(sent(&bench.reply(1, report(1)), is_report), []);
    let why = RequestRefusal::NotMember { access: Slot(0), removed_in: None };
    let outputs = bench.reply(0, AcceptorReply::Refused { slot: None, why });
    assert_eq!(sent(&outputs, is_report), [bench.acceptors[0]]);
}

#[test]
fn a_majority_of_refusals_tells_a_device_that_it_was_removed() {
    let mut bench = Bench::new();
    bench.submit(1);
    let why = RequestRefusal::NotMember { access: Slot(7), removed_in: Some(Slot(5)) };
    for (acceptor, is_enough) in [(0, false), (0, false), (1, true)] {
        let outputs = bench.reply(acceptor, AcceptorReply::Refused { slot: None, why });
        let ended = outputs.contains(&Output::Ended { id: id(1), outcome: Outcome::Unknown });
        assert_eq!((ended, bench.device.removed_in().is_some()), (is_enough, is_enough));
    }
    assert_eq!(bench.device.pending().count(), 0);
}

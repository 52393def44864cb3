//! Tests of the outputs that wait for the device's disk, and of those that do not.

use super::bench::{Bench, add, id};
use super::*;
use crate::machine::Change;

fn submit(number: u64, letter: Option<Letter>) -> Input<Change> {
    Input::Submit { id: id(number), wish: add(number), letter, deadline_us: u64::MAX }
}

fn asks(outputs: &[Output]) -> usize {
    let asks = |output: &&Output| {
        matches!(output, Output::Ask { ask: Ask::Prepare { .. } | Ask::Accept { .. }, .. })
    };
    outputs.iter().filter(asks).count()
}

/// Returns the number of requests sent at once, and of requests sent after the records are stored.
fn asked(bench: &mut Bench, input: Input<Change>) -> (usize, usize) {
    let step = bench.unstored(input);
    let Ok(held) = step.held.release(|_| Ok::<_, std::convert::Infallible>(()));
    (asks(&step.at_once), asks(&held))
}

#[test]
fn a_ballot_is_on_disk_before_anybody_hears_of_it() {
    let mut bench = Bench::unborn();
    let step = bench.unstored(submit(1, None));
    assert_eq!(asks(&step.at_once), 0);
    let records = step.held.record().expect("something to store").clone();
    let is_attempt = |record: &Record<_>| matches!(record, Record::Attempt(_));
    assert!(records.iter().any(is_attempt), "{records:?}");
    assert_eq!(step.held.release(|_| Err::<(), _>("disk full")), Err("disk full"), "nothing is asked then");
}

#[test]
fn a_ballot_that_was_reserved_leaves_while_the_disk_works() {
    let mut bench = Bench::new();
    assert_eq!(asked(&mut bench, submit(1, None)), (3, 0));
}

#[test]
fn a_ballot_that_is_reserved_only_just_now_waits() {
    let mut bench = Bench::unborn();
    drop(bench.unstored(submit(1, None)));
    // The disk has not finished when another device wins the slot and the next slot is due.
    let others = bench.value_of_another(9);
    let steps = [0, 1].map(|acceptor| bench.unstored_vote(acceptor, 7, &others));
    let at_once: usize = steps.iter().map(|step| asks(&step.at_once)).sum();
    assert_eq!((bench.device.state().applied(), at_once), (Slot(1), 0));
}

#[test]
fn an_operation_with_a_letter_is_on_disk_before_anybody_hears_of_it() {
    let mut bench = Bench::new();
    let letter = Letter { to: bench.device.key(), message: "welcome".into() };
    assert_eq!(asked(&mut bench, submit(1, Some(letter))), (0, 3));
}

#[test]
fn a_later_life_uses_no_ballot_that_was_reserved() {
    let mut bench = Bench::unborn();
    let step = bench.unstored(Input::Tick);
    let records = step.held.record().cloned().unwrap_or_default();
    let reserved = records.into_iter().find(|record| matches!(record, Record::Reserved(_)));
    let Some(Record::Reserved(reserve)) = reserved else { panic!("nothing was reserved") };
    let mut bench = bench.restarted_with(Record::Reserved(reserve));
    bench.submit(1);
    assert_eq!(bench.prepared().map(holdoff_paxos::Ballot::attempt), Some(reserve.attempt + 1));
}

#[test]
fn what_is_decided_is_told_at_once_and_told_again_by_a_later_life_that_has_forgotten_it() {
    let mut bench = Bench::new();
    bench.submit(1);
    bench.promise(0);
    bench.promise(1);
    let value = bench.accepted_value().expect("a value");
    let steps = bench.accept_all_unstored();
    let committed = Output::Ended { id: id(1), outcome: Outcome::Committed(Slot(1)) };
    assert!(steps.iter().any(|step| step.at_once.contains(&committed)));
    assert!(steps.iter().all(|step| !step.is_urgent), "there is no hurry to store it");
    // None of the records was stored.
    let submitted = Record::Submitted { id: id(1), wish: add(1), letter: None, born: Slot(0) };
    let mut bench = Bench::new().restarted_with(submitted);
    bench.vote(0, 1, &value);
    let outputs = bench.vote(1, 1, &value);
    assert!(outputs.contains(&committed), "{outputs:?}");
}

#[test]
fn that_an_operation_never_happens_is_on_disk_before_it_is_said() {
    let mut bench = Bench::new();
    bench.submit(1);
    bench.promise(0);
    bench.promise(1);
    // The requested state already holds, so the device sends the operation to no other node and ends it at once.
    bench.accept_all();
    let again = Input::Submit { id: id(2), wish: add(1), letter: None, deadline_us: u64::MAX };
    let step = bench.unstored(again);
    let is_end = |output: &Output| matches!(output, Output::Ended { .. });
    assert!(!step.at_once.iter().any(is_end), "{:?}", step.at_once);
    let Ok(held) = step.held.release(|_| Ok::<_, std::convert::Infallible>(()));
    assert!(held.iter().any(is_end), "{held:?}");
}

#[test]
fn who_has_forgotten_some_slots_does_not_judge_by_what_is_left() {
    // In the restored state the device is not a member any more, but its operation was submitted after it had
    // become a member again.
    let mut bench = Bench::new();
    let me = bench.device.key();
    bench.commit_change(1, Change::Remove { key: me });
    let submitted = Record::Submitted { id: id(5), wish: add(5), letter: None, born: Slot(3) };
    let mut bench = bench.restarted_with(submitted);
    let outputs = bench.step(Input::Tick);
    assert!(!outputs.iter().any(|output| matches!(output, Output::Ended { .. })), "{outputs:?}");
    assert_eq!(bench.device.pending().collect::<Vec<_>>(), [id(5)]);
}

//! Tests of the data that a device keeps until it is safe, and of operations whose outcome is forgotten.

use super::bench::{Bench, add, id};
use super::*;
use crate::machine::Change;
use crate::{PublicKey, Snapshot};

#[test]
fn a_letter_is_safe_with_a_majority_of_those_who_decide_now() {
    let mut bench = Bench::new();
    let letter = Letter { to: PublicKey::from_bytes([9; 32]), message: "welcome".into() };
    bench.decide(1, add(1), Some(letter));
    assert_eq!(bench.device.letters().count(), 1);
    bench.tell(0, Tell::Posted { id: id(1) });
    bench.lose(2, &Change::RemoveAcceptor(bench.acceptors[0]));
    bench.tell(1, Tell::Posted { id: id(1) });
    bench.tell(1, Tell::Posted { id: id(1) });
    assert_eq!(bench.device.letters().count(), 1, "only one of those who decide has it");
    bench.tell(2, Tell::Posted { id: id(1) });
    assert_eq!(bench.device.letters().count(), 0);
}

/// Installs the current state as a snapshot this many slots later.
fn passes(bench: &mut Bench, slots: u64) -> Vec<Output> {
    let bytes = bench.device.state().snapshot().bytes;
    let snapshot = Snapshot { slot: Slot(bench.device.state().applied().0 + slots), bytes };
    for acceptor in 0..2 {
        bench.tell(acceptor, Tell::Compacted { slot: snapshot.slot, digest: snapshot.digest() });
    }
    bench.tell(0, Tell::Snapshot(snapshot))
}

#[test]
fn what_became_of_an_operation_is_unknown_when_nobody_remembers() {
    let unknown = Output::Ended { id: id(1), outcome: Outcome::Unknown };
    let mut bench = Bench::new();
    bench.submit(1);
    let outputs = passes(&mut bench, crate::Operation::LIFETIME - 1);
    assert!(!outputs.contains(&unknown), "it would be remembered");
    assert!(bench.device.pending().any(|pending| pending == id(1)));

    let mut bench = Bench::new();
    bench.submit(1);
    let outputs = passes(&mut bench, crate::Operation::LIFETIME + 1);
    assert!(outputs.contains(&unknown), "{outputs:?}");
    assert!(bench.device.pending().all(|pending| pending != id(1)));
    assert_eq!(bench.device.counts().unknown, 1);
}

#[test]
fn what_has_not_happened_is_wanted_anew_however_long_it_took() {
    let mut bench = Bench::new();
    let wish = Record::Submitted { id: id(1), wish: add(1), letter: None, born: Slot(0) };
    let mut old = bench.restarted_with(wish);
    let bytes = old.device.state().snapshot().bytes;
    old.device.restore(Record::Snapshot(Snapshot { slot: Slot(20_000), bytes }));
    bench = old;
    // This device has applied every slot up to here, and the operation was in none of them.
    bench.step(Input::Tick);
    let outputs = bench.win();
    let done = Output::Ended { id: id(1), outcome: Outcome::Committed(Slot(20_001)) };
    assert!(outputs.contains(&done), "{outputs:?}");
}

#[test]
fn as_much_is_announced_as_fits() {
    let options = Options { batch: 2_000, pending: 2_000, ..Options::default() };
    let mut bench = Bench::with(options);
    let long = |number: u64| match add(number) {
        Change::Add { key, .. } => Change::Add { key, name: "n".repeat(200) },
        other => other,
    };
    let submit =
        |number| Input::Submit { id: id(number), wish: long(number), letter: None, deadline_us: u64::MAX };
    for number in 0..600 {
        bench.step(submit(number));
    }
    // The requested promise is refused; the next attempt announces all operations that are pending by then.
    bench.refuse_promises(7);
    let outputs = bench.wait_out();
    let announced = outputs.iter().find_map(|output| match output {
        Output::Ask { ask: Ask::Prepare { announce, .. }, .. } => Some(announce.clone()),
        _ => None,
    });
    let announced = announced.expect("another attempt");
    let bytes: usize = announced.iter().map(|operation| super::super::pending::weight(&operation.body)).sum();
    let each = bytes / announced.len();
    let most = super::super::pending::BATCH_BYTES;
    assert!(bytes <= most && bytes + each > most, "{} operations of {bytes} bytes", announced.len());
}

//! Tests of learning from a single acceptor: a value that a member has extended is decided, and any other value may
//! not be.

use super::bench::Bench;
use super::*;
use crate::simulation::TestSigner;
use crate::{AcceptorRequest, SlotValue};

/// Returns three values that this member would propose one after the other.
fn one_after_the_other(bench: &Bench, by: TestSigner) -> Vec<SlotValue> {
    let mut values = Vec::new();
    for number in 1..=3 {
        values.push(bench.value_after(&values, by, number));
    }
    values
}

#[test]
fn one_acceptor_proves_a_decision_that_a_member_has_extended() {
    let mut bench = Bench::new();
    let values = one_after_the_other(&bench, Bench::other());
    bench.histories(2, &values);
    assert_eq!(bench.device.state().applied(), Slot(2), "no value extends the third value yet");
    let fourth = bench.value_after(&values[2..], Bench::other(), 4);
    bench.histories(2, &[values[2].clone(), fourth]);
    assert_eq!(bench.device.state().applied(), Slot(3));
}

#[test]
fn a_value_of_a_non_member_proves_nothing() {
    let mut bench = Bench::new();
    let non_member = TestSigner(PublicKey::from_bytes([104; 32]));
    bench.histories(2, &one_after_the_other(&bench, non_member));
    assert_eq!(bench.device.state().applied(), Slot(0));
}

#[test]
fn a_value_with_an_invalid_signature_proves_nothing() {
    let mut bench = Bench::new();
    let non_member = TestSigner(PublicKey::from_bytes([104; 32]));
    let first = bench.value_of_another(1);
    let forged = bench.value_after(std::slice::from_ref(&first), non_member, 2).with_a_forged_author();
    bench.histories(2, &[first, forged]);
    assert_eq!(bench.device.state().applied(), Slot(0));
}

#[test]
fn a_value_that_extends_another_history_proves_nothing() {
    let mut bench = Bench::new();
    let (first, rival) = (bench.value_of_another(1), bench.value_of_another(2));
    let second = bench.value_after(&[rival], Bench::other(), 3);
    bench.histories(2, &[first, second]);
    assert_eq!(bench.device.state().applied(), Slot(0));
}

/// A value that no member has extended is decided again. The device then continues with the later accepted values
/// without another wait.
#[test]
fn slots_without_a_majority_are_decided_again_without_delay() {
    let mut bench = Bench::new();
    let non_member = TestSigner(PublicKey::from_bytes([104; 32]));
    let values = one_after_the_other(&bench, non_member);
    bench.histories(2, &values);
    bench.wait_out();
    bench.promise_with(2, 1, &values[0]);
    bench.promise(0);
    assert_eq!(bench.accepted_value().as_ref(), Some(&values[0]));
    let outputs = bench.accept_all();
    assert_eq!(bench.device.state().applied(), Slot(1));
    let prepares_next = |output: &Output| {
        matches!(output, Output::Send { request: AcceptorRequest::Prepare { slot: Slot(2), .. }, .. })
    };
    assert!(outputs.iter().any(prepares_next), "the device prepares the next slot without a wait");
}

use super::*;
use crate::machine::{Acceptor, Change, Members};
use crate::simulation::Pen;
use crate::{Batch, Signer};

const COUNCIL: CouncilId = CouncilId([7; 16]);
const ME: Pen = Pen(PublicKey::from_bytes([101; 32]));

fn founded() -> Decided<Members> {
    let acceptor = Acceptor { key: PublicKey::from_bytes([201; 32]), life: 1, address: "a:1".into() };
    Decided::new(COUNCIL, Members::found(ME.public(), "me", [acceptor]).unwrap())
}

/// A state with the maximum number of members, the longest names, and the maximum number of acceptors.
fn crowded() -> Decided<Members> {
    let acceptor = |number: u8| Acceptor {
        key: PublicKey::from_bytes([number; 32]),
        life: u64::MAX,
        address: "a".repeat(200),
    };
    let mut members = Members::found(ME.public(), "m".repeat(200), (1..=15).map(acceptor)).unwrap();
    for number in 1..1000_u64 {
        let mut key = [9; 32];
        key[..8].copy_from_slice(&number.to_be_bytes());
        members.admit(PublicKey::from_bytes(key), &"n".repeat(200));
    }
    Decided::new(COUNCIL, members)
}

fn id(number: u64) -> OperationId {
    OperationId(u128::from(number).to_be_bytes())
}

/// An operation that leaves members and acceptors unchanged, and can be applied any number of times.
fn idle(state: &Decided<Members>, number: u64) -> Operation {
    let body = postcard::to_allocvec(&Change::Compact { since: Slot(0) }).unwrap().into();
    Operation::sign(COUNCIL, id(number), state.applied(), body, &ME)
}

fn decide(state: &mut Decided<Members>, operations: Vec<Operation>, withdrawn: Vec<OperationId>) -> Applied {
    let batch = Batch { previous: state.chain(), operations, withdrawn, nonce: 0 };
    let value = Value::sign(COUNCIL, state.applied().next(), &batch, &ME).unwrap();
    state.apply(&value, &ME)
}

/// Decides this many operations in slots of up to 64, with ids from `first` on.
fn fill(state: &mut Decided<Members>, first: u64, many: u64) {
    for slot in 0..many.div_ceil(64) {
        let numbers = first + slot * 64..first + many.min((slot + 1) * 64);
        let operations = numbers.map(|number| idle(state, number)).collect();
        let applied = decide(state, operations, Vec::new());
        assert!(applied.skipped.is_none() && applied.operations.iter().all(|(_, done)| done.is_ok()));
    }
}

#[test]
fn a_snapshot_fits_however_much_has_happened() {
    let mut state = crowded();
    fill(&mut state, 0, 30_000);
    let taken_back = (50_000..58_000).map(id).collect();
    decide(&mut state, Vec::new(), taken_back);
    let bytes = state.snapshot().bytes.len();
    assert!(bytes <= Snapshot::MAX_BYTES, "{bytes}");
    assert!(state.machine().snapshot().len() <= Snapshot::MACHINE_BYTES);
    // The snapshot must also fit with the highest slot numbers.
    let ended = vec![(id(1), Ended::Withdrawn(Slot(u64::MAX))); REMEMBERED];
    let largest = Kept {
        council: COUNCIL,
        compacted: Slot(u64::MAX),
        chain: state.chain(),
        ended,
        machine: vec![0; Snapshot::MACHINE_BYTES],
    };
    assert!(postcard::to_allocvec(&largest).unwrap().len() <= Snapshot::MAX_BYTES);
}

#[test]
fn what_is_forgotten_for_its_number_never_happens_again() {
    let mut state = founded();
    let early = idle(&state, 1);
    assert!(decide(&mut state, vec![early.clone()], Vec::new()).operations[0].1.is_ok());
    assert_eq!(state.fate(&early.id), Some(Ended::Applied(Slot(1))));
    fill(&mut state, 100, REMEMBERED as u64);
    assert_eq!(state.fate(&early.id), None, "forgotten");
    assert!(early.may_happen_in(state.applied().next()), "it is not too old for its slots");
    assert!(!state.remembers(early.born));
    let again = decide(&mut state, vec![early], Vec::new());
    assert!(again.operations[0].1.is_err(), "nothing happens twice");
    // Operations that are born now are still applied.
    let new = idle(&state, 2);
    assert!(decide(&mut state, vec![new], Vec::new()).operations[0].1.is_ok());
}

#[test]
fn who_takes_over_a_snapshot_forgets_and_refuses_as_the_others_do() {
    let mut state = founded();
    fill(&mut state, 0, 5_000);
    let old = idle(&state, 1_000_000);
    fill(&mut state, 5_000, REMEMBERED as u64 - 10);
    let mut restored: Decided<Members> = Decided::restore(COUNCIL, &state.snapshot()).unwrap();
    for state in [&mut state, &mut restored] {
        fill(state, 90_000, 64);
        assert!(!state.remembers(old.born));
        assert!(decide(state, vec![old.clone()], Vec::new()).operations[0].1.is_err());
    }
    assert_eq!(state.snapshot(), restored.snapshot());
}

#[test]
fn a_snapshot_that_remembers_more_is_taken_up_and_remembers_as_much_as_others() {
    let mut state = founded();
    fill(&mut state, 0, 64);
    let snapshot = state.snapshot();
    let mut kept: Kept = postcard::from_bytes(&snapshot.bytes).unwrap();
    kept.ended = (0..3 * REMEMBERED as u64)
        .map(|number| (id(number), Ended::Applied(Slot(1 + number / 30_000))))
        .collect();
    let bytes = postcard::to_allocvec(&kept).unwrap().into();
    let restored: Decided<Members> = Decided::restore(COUNCIL, &Snapshot { bytes, ..snapshot }).unwrap();
    assert_eq!((restored.ended.len(), restored.fates.len()), (REMEMBERED, REMEMBERED));
    assert!(restored.snapshot().bytes.len() < Snapshot::MAX_BYTES);
}

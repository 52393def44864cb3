use holdoff_paxos::NodeId;
use holdoff_paxos::log::Term;

use super::*;
use crate::entry::{Entry, Logged};
use crate::machine::{Command, Facts, Key, KeyValue, Machine, Overlay, Value};

fn voters() -> Configuration {
    Configuration::new([NodeId(1)]).unwrap()
}

fn term() -> Term {
    Term::new(Slot(1), 1, NodeId(1))
}

/// Returns the next entry, as a leader would create it.
fn next(state: &State<KeyValue>, tx_id: u128, command: Command) -> Logged<KeyValue> {
    let goal = vec![command];
    let mut over = Overlay::default();
    let ran = state.machine.execute(&over, &goal);
    let (diff, result) = match ran {
        Ok((diff, answer)) => (diff, Ok(answer)),
        Err(failed) => (crate::machine::Diff::default(), Err(failed)),
    };
    state.machine.lay(&mut over, diff.clone()).unwrap();
    let state_hash = state.machine.hash(&over);
    let (index, term, prev_hash, tx_id) = (state.index.next(), term(), state.hash, TxId(tx_id));
    let entry = Entry { index, term, prev_hash, tx_id, goal, diff, result, state_hash };
    log::Entry { term, payload: Payload::Value(entry) }
}

fn add(by: i64) -> Command {
    Command::Increment(Key::new("a").unwrap(), by)
}

fn with_one() -> State<KeyValue> {
    let mut state = State::new(voters());
    state.apply(Slot(1), &log::Entry { term: term(), payload: Payload::Barrier }).unwrap();
    let entry = next(&state, 1, add(5));
    state.apply(Slot(2), &entry).unwrap();
    state
}

fn changed(entry: &Logged<KeyValue>, change: impl FnOnce(&mut crate::Value<KeyValue>)) -> Logged<KeyValue> {
    let mut entry = entry.clone();
    let Payload::Value(value) = &mut entry.payload else { unreachable!() };
    change(value);
    entry
}

#[test]
fn only_the_next_entry_on_the_same_history_is_taken() {
    let mut state = with_one();
    let before = (state.index, state.hash, state.machine.clone());
    let entry = next(&state, 2, add(1));
    let refused = [
        (Slot(4), entry.clone(), "the entry is for index 4, and 3 comes next: fetch what is missing"),
        (Slot(2), entry.clone(), "the entry is for index 2, and 3 comes next: fetch what is missing"),
        (
            Slot(3),
            changed(&entry, |value| value.index = Slot(4)),
            "the entry is for index 4, and 3 comes next: fetch what is missing",
        ),
        (
            Slot(3),
            changed(&entry, |value| value.prev_hash = Hash::default()),
            "the entry at 3 stands on another history: fetch it from somebody else",
        ),
        (
            Slot(3),
            changed(&entry, |value| value.term = Term::none()),
            "the entry at 3 stands on another history: fetch it from somebody else",
        ),
        (
            Slot(3),
            changed(&entry, |value| value.tx_id = TxId(1)),
            "the transaction of the entry at 3 is done already: whoever wrote it is broken",
        ),
        (
            Slot(3),
            changed(&entry, |value| value.diff = crate::machine::Diff::default()),
            "the entry at 3 makes another state than it says: fetch it from somebody else",
        ),
    ];
    for (slot, entry, why) in refused {
        assert_eq!(state.apply(slot, &entry).unwrap_err().to_string(), why);
        assert_eq!((state.index, state.hash, state.machine.clone()), before);
    }
    state.apply(Slot(3), &entry).unwrap();
    assert_eq!(state.done(TxId(2)), Some((Slot(3), &Ok(vec![Some(Value::from(6))]))));
}

#[test]
fn the_hash_covers_every_part() {
    let state = with_one();
    let entry = next(&state, 2, add(1));
    let hash = |entry: &Logged<KeyValue>| link(state.hash, Slot(3), entry).unwrap();
    let other = next(&state, 2, add(2));
    let Payload::Value(other) = other.payload else { unreachable!() };
    let changes = [
        changed(&entry, |value| value.index = Slot(9)),
        changed(&entry, |value| value.term = Term::none()),
        changed(&entry, |value| value.prev_hash = Hash::default()),
        changed(&entry, |value| value.tx_id = TxId(9)),
        changed(&entry, |value| value.goal = other.goal.clone()),
        changed(&entry, |value| value.diff = other.diff.clone()),
        changed(&entry, |value| value.result = other.result.clone()),
        changed(&entry, |value| value.result = Err(Failed::NoMatch)),
        changed(&entry, |value| value.state_hash = other.state_hash),
        log::Entry { term: Term::none(), payload: entry.payload.clone() },
    ];
    for changed in &changes {
        assert_ne!(hash(changed), hash(&entry), "{changed:?}");
    }
    assert_ne!(link(state.hash, Slot(4), &entry), Some(hash(&entry)));
    assert_ne!(link(Hash::default(), Slot(3), &entry), Some(hash(&entry)));
}

#[test]
fn a_goal_that_fails_has_its_place_and_changes_nothing() {
    let mut state = with_one();
    let before = state.machine.clone();
    let entry = next(&state, 2, add(i64::MAX));
    state.apply(Slot(3), &entry).unwrap();
    assert_eq!((state.index, &state.machine), (Slot(3), &before));
    assert!(matches!(state.done(TxId(2)), Some((Slot(3), Err(Failed::NoResult(_))))));
}

#[test]
fn a_checkpoint_is_the_whole_of_it() {
    let state = with_one();
    let (last, configuration) = (log::Mark { slot: state.index, term: term() }, voters());
    let bytes = postcard::to_stdvec(&state.checkpoint()).unwrap();
    let snapshot =
        log::Snapshot { last, start: Slot(1), configuration, state: postcard::from_bytes(&bytes).unwrap() };
    let mut restored = State::<KeyValue>::restore(&snapshot).unwrap();
    assert_eq!(format!("{restored:?}"), format!("{state:?}"));
    let again = next(&state, 1, add(1));
    assert_eq!(restored.apply(Slot(3), &again), Err(Tear::Twice(Slot(3))));
}

#[test]
fn facts_have_a_history_as_values_have() {
    let mut state = State::<Facts>::new(voters());
    state.apply(Slot(1), &log::Entry { term: term(), payload: Payload::Barrier }).unwrap();
    assert_eq!(state.index(), Slot(1));
}

#[test]
fn what_is_long_ago_is_forgotten_at_the_same_place_by_all() {
    let mut done = Done::<()>::default();
    for index in 1..=REMEMBERED + 1 {
        done.add(Slot(index), TxId(u128::from(index)), Ok(()));
    }
    assert!(done.get(TxId(1)).is_none() && done.get(TxId(2)).is_some());
}

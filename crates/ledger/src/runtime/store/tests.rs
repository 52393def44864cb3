//! What is on disk is what was stored, whatever moment the power went at.

use fastrand::Rng;
use holdoff_disk::forgetful::Disk;
use holdoff_net::Key;
use holdoff_paxos::log::{self, Payload};

use super::*;
use crate::entry::TxId;
use crate::machine::{Command, Key as Name, KeyValue, Machine};
use crate::runtime::identity::node_id;
use crate::state::State;

type Model = ledger::Store<KeyValue>;
type Kept = ledger::Record<KeyValue>;

fn about() -> About {
    About { ledger: LedgerId([3; 16]), founder: node_id(&Key::from_secret(&[1; 32]).public(), 1) }
}

fn empty() -> Model {
    Model::new(about().voters().unwrap(), Checkpoint::default())
}

fn term(attempt: u64) -> Term {
    Term::new(Slot(1), attempt, about().founder)
}

/// Something that could stand in a slot. What it says is of no matter to a disk.
fn entry(rng: &mut Rng, slot: Slot) -> log::Entry<Value<KeyValue>> {
    let goal = vec![Command::Increment(Name::new("sum").unwrap(), rng.i64(-9..9))];
    let (diff, answer) = KeyValue::default().execute(&<_>::default(), &goal).unwrap();
    let state_hash = KeyValue::default().hash(&<_>::default());
    let (term, tx_id) = (term(rng.u64(1..4)), TxId(rng.u128(..)));
    let prev_hash = <_>::default();
    let value =
        crate::Entry { index: slot, term, prev_hash, tx_id, goal, diff, result: Ok(answer), state_hash };
    log::Entry { term, payload: if rng.bool() { Payload::Value(value) } else { Payload::Barrier } }
}

/// A record as a core could want it stored next.
fn record(rng: &mut Rng, model: &Model) -> Kept {
    let (base, last) = (model.snapshot().last.slot.0, model.last().0);
    match rng.u32(..20) {
        0 => Record::Promised(term(rng.u64(1..9)).into()),
        1 => Record::Accepted { term: term(rng.u64(1..9)), last: Slot(rng.u64(base..=last)) },
        2 => Record::Decided(Slot(rng.u64(base..=last))),
        3 if rng.bool() => Record::Snapshot(snapshot(model, Slot(rng.u64(base..=last)), 0)),
        // Of somebody else's log, and further than this one.
        4 if rng.bool() => Record::Snapshot(snapshot(model, Slot(last + rng.u64(..3)), 7)),
        5 => {
            let slot = Slot(rng.u64(base..=last) + 1);
            Record::Entry { slot, entry: entry(rng, slot) }
        }
        _ => {
            let slot = Slot(last + 1);
            Record::Entry { slot, entry: entry(rng, slot) }
        }
    }
}

fn snapshot(model: &Model, slot: Slot, other: u64) -> Snapshot<Checkpoint<<KeyValue as Machine>::Answer>> {
    let here = model.entry(slot).map(|entry| entry.term);
    let term = here.filter(|_| other == 0).unwrap_or_else(|| term(other.max(1)));
    let last = if slot == model.snapshot().last.slot && other == 0 {
        model.snapshot().last
    } else {
        Mark { slot, term }
    };
    let state = State::<KeyValue>::new(about().voters().unwrap()).checkpoint();
    Snapshot { last, start: Slot(1), configuration: about().voters().unwrap(), state }
}

fn kept(records: &[Kept], mut model: Model) -> Model {
    for record in records {
        model.apply(record.clone());
    }
    model
}

/// Which entries are decided need not be stored; everything else must be.
fn same(found: &Model, expected: &Model) -> bool {
    let of = |store: &Model| {
        let first = store.snapshot().last.slot.0 + 1;
        let entries: Vec<_> = (first..=store.last().0).map(|slot| store.entry(Slot(slot)).cloned()).collect();
        (store.promised(), store.accepted(), store.snapshot().clone(), entries)
    };
    of(found) == of(expected) && found.decided() >= expected.snapshot().last.slot
}

#[test]
fn it_is_what_was_stored_after_any_crash() {
    for seed in 0..150 {
        let (disk, mut rng, mut model) = (Disk::default(), Rng::with_seed(seed), empty());
        for _ in 0..6 {
            disk.lose_power_after(rng.u64(1..60));
            let mut pending = Vec::new();
            if let Ok(mut store) = Store::open_with(disk.handle(), 1) {
                loop {
                    let mut next = model.clone();
                    pending = (0..rng.usize(1..5))
                        .map(|_| {
                            let record = record(&mut rng, &next);
                            next.apply(record.clone());
                            record
                        })
                        .collect::<Vec<_>>();
                    if store.write::<KeyValue>(pending.clone()).is_err() {
                        break;
                    }
                    model = next;
                    pending.clear();
                }
            }
            disk.crash(|| rng.u32(..));
            let found = Store::open_with(disk.handle(), 1).unwrap().load::<KeyValue>(&about()).unwrap();
            let with_the_last = kept(&pending, model.clone());
            assert!(
                same(&found, &model) || same(&found, &with_the_last),
                "seed {seed}: found {found:#?}\nexpected {model:#?}"
            );
            model = if same(&found, &model) { model } else { with_the_last };
        }
    }
}

#[test]
fn whoever_could_not_store_stores_nothing_more() {
    let disk = Disk::default();
    let mut store = Store::open_with(disk.handle(), 1).unwrap();
    disk.stop_syncing();
    let promise = || [Record::Promised(term(1).into())];
    assert!(store.write::<KeyValue>(promise()).is_err());
    assert!(matches!(store.write::<KeyValue>(promise()), Err(Error::Disk(_))));
}

#[test]
fn what_has_rotted_is_not_believed() {
    let mut store = Store::in_memory().unwrap();
    let mut rng = Rng::with_seed(1);
    store.write::<KeyValue>([Record::Entry { slot: Slot(1), entry: entry(&mut rng, Slot(1)) }]).unwrap();
    store.load::<KeyValue>(&about()).unwrap();
    let rot = |change: fn(&mut Vec<u8>)| {
        let writing = store.database.begin_write().unwrap();
        {
            let mut log = writing.open_table(LOG).unwrap();
            let mut bytes = log.get(1).unwrap().unwrap().value().to_vec();
            change(&mut bytes);
            log.insert(1, bytes.as_slice()).unwrap();
        }
        writing.commit().unwrap();
        store.load::<KeyValue>(&about()).unwrap_err().to_string()
    };
    assert!(rot(|bytes| bytes[0] ^= 1).contains("an entry is damaged: its sum is wrong"));
    assert!(rot(|bytes| bytes.truncate(3)).contains("cut off"));
}

#[test]
fn a_hole_is_found() {
    let mut store = Store::in_memory().unwrap();
    let mut rng = Rng::with_seed(2);
    let put = |slot: u64, rng: &mut Rng| Record::Entry { slot: Slot(slot), entry: entry(rng, Slot(slot)) };
    store.write::<KeyValue>([put(1, &mut rng), put(3, &mut rng)]).unwrap();
    let why = store.load::<KeyValue>(&about()).unwrap_err().to_string();
    assert!(why.contains("the entry at 3 is damaged: it follows none"), "{why}");
}

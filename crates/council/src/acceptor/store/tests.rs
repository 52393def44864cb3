use std::collections::BTreeMap;

use bytes::Bytes;
use fastrand::Rng;
use holdoff_paxos::{Ballot, NodeId};
use tokio::time::Instant;

use super::*;
use crate::{Batch, Digest, Signature, Signer};
use holdoff_disk::forgetful::Disk;

struct Nobody;

impl Signer for Nobody {
    fn public(&self) -> PublicKey {
        PublicKey::from_bytes([7; 32])
    }

    fn sign(&self, _: &[u8], _: &[u8]) -> Signature {
        Signature::from_bytes([1; 64])
    }
}

/// A model of the expected content of a store: the same rows, under keys that sort in the order of [`Store::load`].
#[derive(Clone, Default, PartialEq, Debug)]
struct Model(BTreeMap<(CouncilId, u8, Vec<u8>), Stored>);

impl Model {
    fn write(&mut self, batch: &[(CouncilId, Stored)]) {
        for (council, stored) in batch {
            let (table, key) = match stored {
                Stored::Snapshot(_) => (0, Vec::new()),
                Stored::Slot(slot, Record::Promised(_)) => (1, [&slot.0.to_be_bytes()[..], &[0]].concat()),
                Stored::Slot(slot, Record::Accepted(_)) => (1, [&slot.0.to_be_bytes()[..], &[1]].concat()),
                Stored::Letter(to, id, _) => (2, [to.as_bytes(), &id.0[..]].concat()),
                Stored::Came(who) => {
                    let is_for = |kept: &Stored| matches!(kept, Stored::Letter(to, ..) if to == who);
                    self.0.retain(|(of, ..), kept| of != council || !is_for(kept));
                    continue;
                }
            };
            if let Stored::Snapshot(Snapshot { slot: last, .. }) = stored {
                let is_later = |kept: &Stored| !matches!(kept, Stored::Slot(slot, _) if slot <= last);
                self.0.retain(|(of, ..), kept| of != council || is_later(kept));
            }
            self.0.insert((*council, table, key), stored.clone());
        }
    }

    fn of(&self, council: CouncilId) -> Vec<Stored> {
        self.0.iter().filter(|((of, ..), _)| *of == council).map(|(_, stored)| stored.clone()).collect()
    }
}

const COUNCILS_USED: u8 = 3;

fn council(number: u8) -> CouncilId {
    CouncilId([number; 16])
}

fn record(rng: &mut Rng) -> (CouncilId, Stored) {
    let (council, slot) = (council(rng.u8(0..COUNCILS_USED)), Slot(rng.u64(1..12)));
    let ballot = Ballot::new(slot, rng.u64(1..100), NodeId(rng.u128(..)));
    let bytes = Bytes::from(vec![rng.u8(..); rng.usize(0..3000)]);
    let stored = match rng.u8(0..11) {
        0..4 => Stored::Slot(slot, Record::Promised(ballot)),
        4..8 => {
            let batch = Batch {
                previous: Digest([rng.u8(..); 32]),
                operations: Vec::new(),
                withdrawn: vec![OperationId([3; 16]); rng.usize(0..60)],
                nonce: rng.u64(..),
            };
            let value = Value::sign(council, slot, &batch, &Nobody).unwrap();
            Stored::Slot(slot, Record::Accepted(Vote { ballot, value }))
        }
        8 => Stored::Snapshot(Snapshot { slot, bytes }),
        9 => Stored::Came(PublicKey::from_bytes([rng.u8(0..3); 32])),
        _ => {
            Stored::Letter(PublicKey::from_bytes([rng.u8(0..3); 32]), OperationId([rng.u8(0..3); 16]), bytes)
        }
    };
    (council, stored)
}

fn batch(rng: &mut Rng) -> Vec<(CouncilId, Stored)> {
    (0..rng.usize(1..8)).map(|_| record(rng)).collect()
}

fn holds(store: &Store, model: &Model) -> bool {
    (0..COUNCILS_USED).all(|number| store.load(council(number)).unwrap() == model.of(council(number)))
}

#[test]
fn a_file_holds_what_was_written_and_the_life_it_began_with() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("acceptor.redb");
    let (mut rng, mut model) = (Rng::with_seed(1), Model::default());
    let mut life = None;
    for _ in 0..4 {
        let mut store = Store::open(&path).unwrap();
        assert_eq!(*life.get_or_insert(store.life()), store.life());
        assert!(holds(&store, &model));
        for _ in 0..20 {
            let batch = batch(&mut rng);
            model.write(&batch);
            store.write(batch).unwrap();
        }
        assert!(holds(&store, &model));
        assert_eq!(store.councils(), usize::from(COUNCILS_USED));
    }
    std::fs::remove_file(&path).unwrap();
    let empty = Store::open(&path).unwrap();
    assert_ne!(life, Some(empty.life()), "who lost the disk is somebody else");
    assert!(holds(&empty, &Model::default()) && empty.councils() == 0);
}

#[test]
fn only_one_process_opens_a_store() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("acceptor.redb");
    let _store = Store::open(&path).unwrap();
    assert_eq!(Store::open(&path).unwrap_err(), StoreError::InUse);
}

#[test]
fn a_later_format_is_left_alone() {
    let disk = Disk::default();
    let store = Store::open_with(disk.handle(), 1).unwrap();
    let transaction = store.database.begin_write().unwrap();
    transaction.open_table(ACCEPTOR).unwrap().insert("format", FORMAT + 1).unwrap();
    transaction.commit().unwrap();
    drop(store);
    assert_eq!(Store::open_with(disk.handle(), 1).unwrap_err(), StoreError::Format(FORMAT + 1));
}

/// `HOLDOFF_SEED=… cargo test -p holdoff-council --lib after_a_crash` starts at another seed.
#[test]
fn after_a_crash_everything_is_there_that_was_said_to_be_and_nothing_by_half() {
    let first = std::env::var("HOLDOFF_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let (mut interrupted, mut survived) = (0, 0);
    for seed in first..first + 300_u64 {
        let mut rng = Rng::with_seed(seed);
        let (disk, mut model, mut life) = (Disk::default(), Model::default(), None);
        for boot in 0..6 {
            disk.lose_power_after(rng.u64(1..200));
            let opened = Store::open_with(disk.handle(), rng.u64(..));
            if let Ok(mut store) = opened {
                assert_eq!(*life.get_or_insert(store.life()), store.life(), "seed {seed}");
                for written in 0.. {
                    assert!(written < 200, "seed {seed}: what is written does not reach the disk");
                    let batch = batch(&mut rng);
                    let mut after = model.clone();
                    after.write(&batch);
                    if store.write(batch).is_ok() {
                        model = after;
                        continue;
                    }
                    interrupted += 1;
                    assert!(
                        store.write([]).is_err() && store.load(council(0)).is_err(),
                        "it is of no use now"
                    );
                    drop(store);
                    disk.crash(|| rng.u32(..));
                    let store = Store::open_with(disk.handle(), 0).unwrap_or_else(|error| {
                        panic!("seed {seed}, boot {boot}: {error}");
                    });
                    assert!(holds(&store, &model) || holds(&store, &after), "seed {seed}, boot {boot}");
                    if !holds(&store, &model) {
                        survived += 1;
                        model = after;
                    }
                    break;
                }
            } else {
                // The store must also open after a power failure during its creation or its opening.
                disk.crash(|| rng.u32(..));
                let store = Store::open_with(disk.handle(), rng.u64(..)).unwrap_or_else(|error| {
                    panic!("seed {seed}, boot {boot}: {error}");
                });
                assert_eq!(*life.get_or_insert(store.life()), store.life(), "seed {seed}");
                assert!(holds(&store, &model), "seed {seed}, boot {boot}");
            }
        }
    }
    println!("{interrupted} writes interrupted, {survived} of them there all the same");
    assert!(interrupted > 1000 && survived > 10);
}

#[test]
fn a_disk_that_does_not_sync_is_not_used_again() {
    let disk = Disk::default();
    let mut rng = Rng::with_seed(5);
    let mut store = Store::open_with(disk.handle(), 1).unwrap();
    store.write(batch(&mut rng)).unwrap();
    disk.stop_syncing();
    let error = store.write(batch(&mut rng)).unwrap_err();
    assert!(error.to_string().contains("does not sync any more"), "{error}");
    assert_eq!(store.write(batch(&mut rng)), Err(error.clone()));
    assert_eq!(store.load(council(0)), Err(error));
}

#[test]
fn each_batch_is_synced_once() {
    let (disk, mut rng) = (Disk::default(), Rng::with_seed(5));
    let mut store = Store::open_with(disk.handle(), 1).unwrap();
    let before = disk.syncs();
    for _ in 0..100 {
        store.write((0..50).map(|_| record(&mut rng))).unwrap();
    }
    let syncs = disk.syncs() - before;
    assert!((100..=110).contains(&syncs), "{syncs} syncs: one each, and a few for growing");
}

#[test]
fn a_simulated_store_is_cheap() {
    let mut rng = Rng::with_seed(9);
    let batches: Vec<_> = (0..100).map(|_| vec![record(&mut rng)]).collect();
    let begin = Instant::now();
    let mut store = Store::open_with(Disk::default().handle(), 1).unwrap();
    let opened = begin.elapsed();
    for batch in batches {
        store.write(batch).unwrap();
    }
    println!("opened in {opened:?}, opened and 100 times written in {:?}", begin.elapsed());
    assert!(begin.elapsed().as_millis() < 1000);
}

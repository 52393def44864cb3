//! The store on a disk with torn writes: the power fails at every disk step.

use std::collections::BTreeMap;

use bytes::Bytes;
use fastrand::Rng;

use super::*;
use crate::{Batch, Digest, Signature, Signer};
use holdoff_disk::faulty::FaultyDisk;

struct NoSigner;

impl Signer for NoSigner {
    fn public(&self) -> PublicKey {
        PublicKey::from_bytes([7; 32])
    }

    fn sign(&self, _: &[u8], _: &[u8]) -> Signature {
        Signature::from_bytes([1; 64])
    }
}

type Change = Vec<u8>;

const COUNCIL: CouncilId = CouncilId([9; 16]);

/// The expected content of a store. The keys of the rows sort in the order of [`Store::load`].
#[derive(Clone, Default, PartialEq, Debug)]
struct Model {
    key: Option<PublicKey>,
    snapshot: Option<CouncilSnapshot>,
    rows: BTreeMap<(u8, Vec<u8>), Record<Change>>,
}

/// An action that the store performs atomically.
#[derive(Clone, Debug)]
enum Action {
    Join(PublicKey, CouncilSnapshot),
    SetKey(PublicKey),
    Write(Vec<Record<Change>>),
}

impl Model {
    fn after(&self, action: &Action) -> Self {
        let mut model = self.clone();
        match action {
            Action::Join(key, snapshot) => {
                model.key = Some(*key);
                model.take(Record::Snapshot(snapshot.clone()));
            }
            Action::SetKey(key) => model.key = Some(*key),
            Action::Write(records) => records.iter().cloned().for_each(|record| model.take(record)),
        }
        model
    }

    fn take(&mut self, record: Record<Change>) {
        let by_slot = |slot: Slot| slot.0.to_be_bytes().to_vec();
        match &record {
            Record::Applied { slot, .. } => {
                self.forget_attempts(*slot);
                self.rows.insert((0, by_slot(*slot)), record);
            }
            Record::Attempt(BallotRecord { slot, attempt }) => {
                let row = self.rows.entry((1, by_slot(*slot))).or_insert_with(|| record.clone());
                if let Record::Attempt(before) = row {
                    before.attempt = before.attempt.max(*attempt);
                }
            }
            Record::Reserved(_) => drop(self.rows.insert((1, Vec::new()), record)),
            Record::Submitted { id, .. } => drop(self.rows.insert((2, id.0.to_vec()), record)),
            Record::Ended { id } => drop(self.rows.remove(&(2, id.0.to_vec()))),
            Record::Mail { id, .. } => drop(self.rows.insert((3, id.0.to_vec()), record)),
            Record::Posted { id } => drop(self.rows.remove(&(3, id.0.to_vec()))),
            Record::Snapshot(snapshot) => {
                self.forget_attempts(snapshot.slot);
                let last = snapshot.slot;
                self.rows.retain(|_, row| !matches!(row, Record::Applied { slot, .. } if *slot <= last));
                self.snapshot = Some(snapshot.clone());
            }
        }
    }

    fn forget_attempts(&mut self, upto: Slot) {
        self.rows.retain(|_, row| !matches!(row, Record::Attempt(attempt) if attempt.slot <= upto));
    }
}

fn snapshot(rng: &mut Rng) -> CouncilSnapshot {
    CouncilSnapshot { slot: Slot(rng.u64(0..12)), bytes: Bytes::from(vec![rng.u8(..); rng.usize(0..6000)]) }
}

fn record(rng: &mut Rng) -> Record<Change> {
    let (slot, id) = (Slot(rng.u64(1..12)), OperationId([rng.u8(0..4); 16]));
    let bytes = vec![rng.u8(..); rng.usize(0..2000)];
    let mail = Mail { to: PublicKey::from_bytes([rng.u8(..); 32]), message: bytes.clone().into() };
    match rng.u8(0..13) {
        0..3 => Record::Submitted { id, change: bytes, mail: rng.bool().then_some(mail), birth_slot: slot },
        3 => Record::Ended { id },
        4..7 => Record::Attempt(BallotRecord { slot, attempt: rng.u64(1..9) }),
        7..9 => {
            let withdrawn = vec![OperationId([3; 16]); rng.usize(0..60)];
            let batch =
                Batch { previous: Digest([1; 32]), operations: Vec::new(), withdrawn, nonce: rng.u64(..) };
            Record::Applied {
                slot,
                value: SlotValue::sign(COUNCIL, slot, &batch, None, false, &NoSigner).unwrap(),
            }
        }
        9 => Record::Snapshot(snapshot(rng)),
        10 => Record::Mail { id, mail },
        11 => Record::Reserved(AttemptReserve { through: slot, attempt: rng.u64(1..9) }),
        _ => Record::Posted { id },
    }
}

/// Returns random actions of a device. The first one joins a council.
fn random_actions(rng: &mut Rng, count: usize) -> Vec<Action> {
    let key = |rng: &mut Rng| PublicKey::from_bytes([rng.u8(..); 32]);
    let first = Action::Join(key(rng), snapshot(rng));
    let later = (0..count).map(|_| match rng.u8(0..12) {
        0 => Action::SetKey(key(rng)),
        _ => Action::Write((0..rng.usize(1..6)).map(|_| record(rng)).collect()),
    });
    std::iter::once(first).chain(later.collect::<Vec<_>>()).collect()
}

fn perform(store: &Store, action: &Action) -> Result<(), Error> {
    match action {
        Action::Join(key, snapshot) => {
            store.initialize(&DeviceIdentity { council: COUNCIL, key: *key }, snapshot)
        }
        Action::SetKey(key) => store.set_key(key),
        Action::Write(records) => store.put_all(records.clone()),
    }
}

fn holds(store: &Store, model: &Model) -> bool {
    let identity = store.identity().unwrap();
    let rows: Vec<Record<Change>> = store.load().unwrap();
    identity.map(|identity| identity.key) == model.key
        && store.snapshot().unwrap() == model.snapshot
        && rows == model.rows.values().cloned().collect::<Vec<_>>()
}

/// Performs the actions until the power fails after this many disk steps. Then reopens the store, checks it, and
/// performs the actions again. Returns whether the power failed before the last action ended.
fn lose_power_after(steps: u64, seed: u64, actions: &[Action], survived: &mut u64) -> bool {
    let (disk, mut model, mut rng) = (FaultyDisk::default(), Model::default(), Rng::with_seed(seed));
    disk.lose_power_after(steps);
    let mut interrupted = None;
    if let Ok(store) = Store::open_with(disk.handle(), 5) {
        for action in actions {
            let after = model.after(action);
            if perform(&store, action).is_err() {
                interrupted = Some(after);
                break;
            }
            model = after;
        }
        if interrupted.is_none() {
            return false;
        }
    }
    disk.crash(|| rng.u32(..));
    let store = Store::open_with(disk.handle(), 6);
    let store = store.unwrap_or_else(|error| panic!("seed {seed}, power loss after {steps} steps: {error}"));
    let after = interrupted.unwrap_or_default();
    let has_survived = !holds(&store, &model);
    assert!(!has_survived || holds(&store, &after), "seed {seed}, power loss after {steps} steps");
    assert!(
        model.key.is_none() || store.incarnation() == 5,
        "a device that has joined a council keeps its incarnation"
    );
    if has_survived {
        *survived += 1;
        model = after;
    }
    // The reopened store works as before.
    for action in actions {
        perform(&store, action).unwrap();
        model = model.after(action);
    }
    assert!(holds(&store, &model), "seed {seed}, power loss after {steps} steps");
    true
}

/// `HOLDOFF_SEED=… cargo test -p holdoff-council --lib a_power_loss_loses_no` replays a seed.
#[test]
fn a_power_loss_loses_no_acknowledged_step_and_splits_none() {
    let seeds = holdoff_testbed::Seeds::new(4, 24);
    let (count, mut losses, mut survived) = (seeds.count(), 0_u64, 0);
    for seed in seeds {
        let actions = random_actions(&mut Rng::with_seed(seed), 12);
        let steps = (1..).take_while(|steps| {
            // The same disk step with another choice of surviving unsynced sectors.
            (0..2).all(|again| lose_power_after(*steps, seed * 2 + again, &actions, &mut survived))
        });
        losses += steps.count() as u64;
    }
    println!("power loss at {losses} steps, twice each; {survived} interrupted actions survived");
    assert!(count < 4 || (losses > 40 * count && survived > count));
}

#[test]
fn a_store_keeps_its_records() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("device.redb");
    let mut model = Model::default();
    for action in random_actions(&mut Rng::with_seed(3), 60) {
        let store = Store::open(&path).unwrap();
        assert!(holds(&store, &model));
        perform(&store, &action).unwrap();
        model = model.after(&action);
    }
    assert!(holds(&Store::open(&path).unwrap(), &model));
}

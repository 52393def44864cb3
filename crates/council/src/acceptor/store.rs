//! The acceptor's data on disk.
//!
//! The store is one file, and each write is one transaction: after a crash, either all of it is stored or nothing.
//! Keys start with the council, followed by the slot:
//!
//! | table | key | value |
//! |---|---|---|
//! | `acceptor` | `format`, `incarnation` | a number |
//! | `slots` | council, slot, 0 | a promise: a ballot |
//! | `slots` | council, slot, 1 | a vote: a ballot and a value |
//! | `snapshots` | council | a slot and the state after it, and the endorsements |
//! | `mail` | council, key, operation | a message |
//! | `access` | council | the members |
//! | `access` | council, key | the last endorsement of a member |
//!
//! A vote and the promise of the next slot are adjacent, because the acceptor mostly stores them together. Each
//! additional table would add some pages to each commit. The list of councils is derived from the keys.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use holdoff_disk::DiskError;
use holdoff_disk::store::{MetadataTable, OpenError, OpenStore, StoreSchema};
use holdoff_paxos::Slot;
use holdoff_paxos::slot::{Record, Vote};
use redb::{
    Database, ReadableDatabase, StorageBackend, Table, TableDefinition, TableHandle, WriteTransaction,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{AcceptorRecord, CouncilId, CouncilSnapshot, Endorsement, OperationId, PublicKey, SlotValue};

type Rows = TableDefinition<'static, &'static [u8], &'static [u8]>;

const ACCEPTOR: MetadataTable = TableDefinition::new("acceptor");
const SLOTS: Rows = TableDefinition::new("slots");
const SNAPSHOTS: Rows = TableDefinition::new("snapshots");
const MAIL: Rows = TableDefinition::new("mail");
const ACCESS: Rows = TableDefinition::new("access");
const TABLES: [Rows; 4] = [SLOTS, SNAPSHOTS, MAIL, ACCESS];

/// The kinds of records of a slot, as the last part of the key.
const PROMISE: u8 = 0;
const VOTE: u8 = 1;

/// The version of the table format. A release reads its own format and earlier ones. Formats before the fourth were
/// never released.
const FORMAT: u64 = 4;
const FIRST: u64 = 4;
/// An upper bound for the length of the part of a key after the council, which is at most a public key and an
/// operation id.
const LONGEST_KEY: usize = 64;
const SCHEMA: StoreSchema =
    StoreSchema { metadata: ACCEPTOR, formats: FIRST..=FORMAT, cache_bytes: 64 * 1024 * 1024, create_tables };

/// The store of one acceptor.
///
/// After a failed write the caller must not use the store again, and cannot: the content of the disk is then
/// unknown, and an answer after another attempt could depend on data that is not there. A new process reads the
/// disk and finds out.
#[derive(Debug)]
pub struct Store {
    database: Database,
    incarnation: u64,
    councils: HashSet<CouncilId>,
    failed: Option<StoreError>,
}

/// The error of a store that cannot be used. The process must not use the store again.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process has the store open.
    #[error("another process has this acceptor's store open: stop that one, or use another directory")]
    InUse,
    /// Another release has written the store.
    #[error(
        "the acceptor's store has format {0}, and this release reads {FIRST} to {FORMAT}: use the release that made it"
    )]
    Format(u64),
    /// The disk has failed, or its content is corrupt.
    #[error(
        "the acceptor's disk has failed: {0}. It answers no requests until it is started again; if the disk is \
         lost, start it on an empty directory and let its councils replace it"
    )]
    Disk(#[from] DiskError),
}

impl StoreError {
    fn disk(error: impl Into<redb::Error>) -> Self {
        Self::Disk(DiskError::new(error.into()))
    }
}

impl From<OpenError> for StoreError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::InUse => Self::InUse,
            OpenError::Format(found) => Self::Format(found),
            OpenError::Disk(why) => Self::Disk(why),
            error @ (OpenError::NoMetadata | OpenError::SyncFailed(_)) => Self::Disk(DiskError::new(error)),
        }
    }
}

impl Store {
    /// Opens the store in this file, or creates it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::take_up(SCHEMA.open(path)?)
    }

    /// Opens the store on a storage backend. If the backend is empty, the new store gets this incarnation.
    pub fn open_with(backend: impl StorageBackend, incarnation: u64) -> Result<Self, StoreError> {
        Self::take_up(SCHEMA.open_on(backend, incarnation)?)
    }

    fn take_up(OpenStore { database, incarnation }: OpenStore) -> Result<Self, StoreError> {
        let councils = read_councils(&database)?;
        Ok(Self { database, incarnation, councils, failed: None })
    }

    /// Returns the incarnation of the store, a number drawn when the store was created. After the loss of the disk,
    /// the new store has another incarnation.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Returns the number of councils that have data in the store.
    pub fn councils(&self) -> usize {
        self.councils.len()
    }

    /// Iterates over all councils, in no particular order.
    pub fn all(&self) -> impl Iterator<Item = CouncilId> {
        self.councils.iter().copied()
    }

    /// Returns whether a council has data in the store.
    pub fn knows(&self, council: &CouncilId) -> bool {
        self.councils.contains(council)
    }

    /// Writes the batch in one transaction. When this function returns, the batch is on disk.
    pub fn write(
        &mut self,
        batch: impl IntoIterator<Item = (CouncilId, AcceptorRecord)>,
    ) -> Result<(), StoreError> {
        self.usable()?;
        let mut new = HashSet::new();
        let written = self.transact(batch, &mut new);
        self.councils.extend(new);
        written.inspect_err(|error| self.failed = Some(error.clone()))
    }

    fn transact(
        &self,
        batch: impl IntoIterator<Item = (CouncilId, AcceptorRecord)>,
        new: &mut HashSet<CouncilId>,
    ) -> Result<(), StoreError> {
        let transaction = self.database.begin_write().map_err(StoreError::disk)?;
        let mut tables = Tables::of(&transaction);
        for (council, stored) in batch {
            if !self.knows(&council) {
                new.insert(council);
            }
            put(&mut tables, council, stored)?;
        }
        drop(tables);
        transaction.commit().map_err(StoreError::disk)
    }

    /// Loads all records of a council, in an order in which [`CouncilAcceptor::restore`](crate::CouncilAcceptor::restore) accepts them.
    pub fn load(&self, council: CouncilId) -> Result<Vec<AcceptorRecord>, StoreError> {
        self.usable()?;
        let mut found = Vec::new();
        if !self.knows(&council) {
            return Ok(found);
        }
        self.each(SNAPSHOTS, council, |_, value| {
            let (snapshot, certificate) = decode(value)?;
            found.push(AcceptorRecord::Snapshot(snapshot, certificate));
            Ok(())
        })?;
        self.each(ACCESS, council, |key, value| {
            found.push(read_access(key, value)?);
            Ok(())
        })?;
        self.each(SLOTS, council, |key, value| {
            found.push(read_slot(key, value)?);
            Ok(())
        })?;
        self.each(MAIL, council, |key, value| {
            let (to, id): (PublicKey, OperationId) = decode(key)?;
            found.push(AcceptorRecord::Mail(to, id, value.to_vec().into()));
            Ok(())
        })?;
        Ok(found)
    }

    /// Visits the rows of a council in one table, by the part of the key after the council.
    fn each(
        &self,
        rows: Rows,
        council: CouncilId,
        mut take: impl FnMut(&[u8], &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let transaction = self.database.begin_read().map_err(StoreError::disk)?;
        let table = transaction.open_table(rows).map_err(StoreError::disk)?;
        for row in table.range(council.0.as_slice()..).map_err(StoreError::disk)? {
            let (key, value) = row.map_err(StoreError::disk)?;
            let Some(rest) = key.value().strip_prefix(council.0.as_slice()) else { break };
            take(rest, value.value())?;
        }
        Ok(())
    }

    fn usable(&self) -> Result<(), StoreError> {
        self.failed.clone().map_or(Ok(()), Err)
    }
}

fn create_tables(writing: &WriteTransaction) -> Result<(), redb::TableError> {
    TABLES.into_iter().try_for_each(|rows| writing.open_table(rows).map(drop))
}

fn read_councils(database: &Database) -> Result<HashSet<CouncilId>, StoreError> {
    let transaction = database.begin_read().map_err(StoreError::disk)?;
    let mut councils = HashSet::new();
    for rows in TABLES {
        let table = transaction.open_table(rows).map_err(StoreError::disk)?;
        let mut after: Vec<u8> = Vec::new();
        // Skip from one council to the next, past all rows of the council.
        while let Some(row) = table.range(after.as_slice()..).map_err(StoreError::disk)?.next() {
            let (key, _) = row.map_err(StoreError::disk)?;
            let (council, _): (CouncilId, _) = postcard::take_from_bytes(key.value()).map_err(unreadable)?;
            councils.insert(council);
            // No key of a council is as long as this one, and none is higher.
            after = [council.0.as_slice(), [u8::MAX; LONGEST_KEY].as_slice()].concat();
        }
    }
    Ok(councils)
}

fn put(tables: &mut Tables<'_>, council: CouncilId, stored: AcceptorRecord) -> Result<(), StoreError> {
    match stored {
        AcceptorRecord::Slot(slot, Record::Promised(ballot)) => {
            insert(tables, SLOTS, &slot_key(council, slot, PROMISE), &encode(&ballot)?)
        }
        AcceptorRecord::Slot(slot, Record::Accepted(vote)) => {
            insert(tables, SLOTS, &slot_key(council, slot, VOTE), &encode(&vote)?)
        }
        AcceptorRecord::Access(access) => insert(tables, ACCESS, &council.0, &encode(&access)?),
        AcceptorRecord::Endorsed(endorsement) => {
            insert(tables, ACCESS, &endorsement_key(council, &endorsement.by), &encode(&endorsement)?)
        }
        AcceptorRecord::Snapshot(snapshot, certificate) => compact(tables, council, &(snapshot, certificate)),
        AcceptorRecord::Mail(to, id, message) => insert(tables, MAIL, &mail_key(council, &to, id), &message),
        AcceptorRecord::AddresseeConnected(who) => delete_mail(tables, council, &who),
    }
}

/// Stores a snapshot, and deletes the slots that it covers and the endorsements.
fn compact(
    tables: &mut Tables<'_>,
    council: CouncilId,
    snapshot: &(CouncilSnapshot, Vec<Endorsement>),
) -> Result<(), StoreError> {
    let (first, last) = (slot_key(council, Slot(0), PROMISE), slot_key(council, snapshot.0.slot, VOTE));
    let table = tables.table(SLOTS)?;
    table.retain_in(first.as_slice()..=last.as_slice(), |_, _| false).map_err(StoreError::disk)?;
    let [first, last] = [0, u8::MAX].map(|byte| endorsement_key(council, &PublicKey::from_bytes([byte; 32])));
    let table = tables.table(ACCESS)?;
    table.retain_in(first.as_slice()..=last.as_slice(), |_, _| false).map_err(StoreError::disk)?;
    insert(tables, SNAPSHOTS, &council.0, &encode(snapshot)?)
}

fn delete_mail(tables: &mut Tables<'_>, council: CouncilId, to: &PublicKey) -> Result<(), StoreError> {
    let [first, last] = [0, u8::MAX].map(|byte| mail_key(council, to, OperationId([byte; 16])));
    let table = tables.table(MAIL)?;
    table.retain_in(first.as_slice()..=last.as_slice(), |_, _| false).map_err(StoreError::disk)
}

fn mail_key(council: CouncilId, to: &PublicKey, id: OperationId) -> Vec<u8> {
    [&council.0[..], to.as_bytes(), &id.0].concat()
}

fn insert(tables: &mut Tables<'_>, rows: Rows, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
    tables.table(rows)?.insert(key, value).map(drop).map_err(StoreError::disk)
}

/// The tables of one transaction. Each is opened at its first use and only once, because opening a table takes
/// longer than inserting a row.
struct Tables<'t> {
    transaction: &'t WriteTransaction,
    open: BTreeMap<String, Table<'t, &'static [u8], &'static [u8]>>,
}

impl<'t> Tables<'t> {
    fn of(transaction: &'t WriteTransaction) -> Self {
        Self { transaction, open: BTreeMap::new() }
    }

    fn table(&mut self, rows: Rows) -> Result<&mut Table<'t, &'static [u8], &'static [u8]>, StoreError> {
        Ok(match self.open.entry(rows.name().to_owned()) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(place) => {
                place.insert(self.transaction.open_table(rows).map_err(StoreError::disk)?)
            }
        })
    }
}

fn slot_key(council: CouncilId, slot: Slot, kind: u8) -> Vec<u8> {
    // Big-endian, so that the order of the keys is the order of the slots.
    [&council.0[..], &slot.0.to_be_bytes(), &[kind]].concat()
}

fn endorsement_key(council: CouncilId, by: &PublicKey) -> Vec<u8> {
    [&council.0[..], by.as_bytes()].concat()
}

fn read_access(key: &[u8], value: &[u8]) -> Result<AcceptorRecord, StoreError> {
    if key.is_empty() {
        return decode(value).map(AcceptorRecord::Access);
    }
    decode(value).map(AcceptorRecord::Endorsed)
}

fn read_slot(key: &[u8], value: &[u8]) -> Result<AcceptorRecord, StoreError> {
    let bad = || StoreError::Disk(DiskError::new("a key of a slot cannot be read"));
    let (kind, slot) = key.split_last().ok_or_else(bad)?;
    let slot = Slot(u64::from_be_bytes(slot.try_into().map_err(|_| bad())?));
    let record = match *kind {
        PROMISE => Record::Promised(decode(value)?),
        VOTE => Record::Accepted(decode::<Vote<SlotValue>>(value)?),
        _ => return Err(bad()),
    };
    Ok(AcceptorRecord::Slot(slot, record))
}

fn encode(what: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    postcard::to_allocvec(what).map_err(|error| StoreError::Disk(DiskError::new(error)))
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, StoreError> {
    postcard::from_bytes(bytes).map_err(unreadable)
}

fn unreadable(error: postcard::Error) -> StoreError {
    StoreError::Disk(DiskError::within("a row cannot be read", error))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;
    use fastrand::Rng;
    use holdoff_paxos::{Ballot, NodeId};
    use tokio::time::Instant;

    use super::*;
    use crate::{Access, Batch, Digest, Founding, Signature, Signer};
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

    /// A model of the expected content of a store: the same rows, under keys that sort in the order of [`Store::load`].
    #[derive(Clone, Default, PartialEq, Debug)]
    struct Model(BTreeMap<(CouncilId, u8, Vec<u8>), AcceptorRecord>);

    impl Model {
        fn write(&mut self, batch: &[(CouncilId, AcceptorRecord)]) {
            for (council, stored) in batch {
                let (table, key) = match stored {
                    AcceptorRecord::Snapshot(..) => (0, Vec::new()),
                    AcceptorRecord::Access(_) => (1, Vec::new()),
                    AcceptorRecord::Endorsed(endorsement) => (1, endorsement.by.as_bytes().to_vec()),
                    AcceptorRecord::Slot(slot, Record::Promised(_)) => {
                        (2, [&slot.0.to_be_bytes()[..], &[0]].concat())
                    }
                    AcceptorRecord::Slot(slot, Record::Accepted(_)) => {
                        (2, [&slot.0.to_be_bytes()[..], &[1]].concat())
                    }
                    AcceptorRecord::Mail(to, id, _) => (3, [to.as_bytes(), &id.0[..]].concat()),
                    AcceptorRecord::AddresseeConnected(who) => {
                        let is_for = |usage: &AcceptorRecord| matches!(usage, AcceptorRecord::Mail(to, ..) if to == who);
                        self.0.retain(|(of, ..), usage| of != council || !is_for(usage));
                        continue;
                    }
                };
                if let AcceptorRecord::Snapshot(CouncilSnapshot { slot: last, .. }, _) = stored {
                    let is_later = |usage: &AcceptorRecord| match usage {
                        AcceptorRecord::Slot(slot, _) => slot > last,
                        AcceptorRecord::Endorsed(_) => false,
                        _ => true,
                    };
                    self.0.retain(|(of, ..), usage| of != council || is_later(usage));
                }
                self.0.insert((*council, table, key), stored.clone());
            }
        }

        fn of(&self, council: CouncilId) -> Vec<AcceptorRecord> {
            self.0.iter().filter(|((of, ..), _)| *of == council).map(|(_, stored)| stored.clone()).collect()
        }
    }

    const COUNCILS_USED: u8 = 3;

    fn council(number: u8) -> CouncilId {
        CouncilId([number; 16])
    }

    fn founding(number: u8) -> (Founding, CouncilId) {
        let members = (0..=number).map(|key| PublicKey::from_bytes([key; 32])).take(64).collect();
        let founding = Founding { members, state: Digest::default(), nonce: [number; 16], recovered: None };
        let council = founding.council();
        (founding, council)
    }

    fn record(rng: &mut Rng) -> (CouncilId, AcceptorRecord) {
        let (council, slot) = (council(rng.u8(0..COUNCILS_USED)), Slot(rng.u64(1..12)));
        let ballot = Ballot::new(slot, rng.u64(1..100), NodeId(rng.u128(..)));
        let bytes = Bytes::from(vec![rng.u8(..); rng.usize(0..3000)]);
        let stored = match rng.u8(0..13) {
            0..4 => AcceptorRecord::Slot(slot, Record::Promised(ballot)),
            4..8 => {
                let batch = Batch {
                    previous: Digest([rng.u8(..); 32]),
                    operations: Vec::new(),
                    withdrawn: vec![OperationId([3; 16]); rng.usize(0..60)],
                    nonce: rng.u64(..),
                };
                let value = SlotValue::sign(council, slot, &batch, None, false, &NoSigner).unwrap();
                AcceptorRecord::Slot(slot, Record::Accepted(Vote { ballot, value }))
            }
            8 => {
                let endorsement = Endorsement::sign(council, slot, Digest([8; 32]), Slot(0), &NoSigner);
                AcceptorRecord::Snapshot(CouncilSnapshot { slot, bytes }, vec![endorsement; rng.usize(0..3)])
            }
            11 => {
                let by = PublicKey::from_bytes([rng.u8(..); 32]);
                AcceptorRecord::Endorsed(Endorsement {
                    by,
                    ..Endorsement::sign(council, slot, Digest([9; 32]), Slot(0), &NoSigner)
                })
            }
            12 => {
                let (founding, council) = founding(rng.u8(..));
                let members = founding.members.iter().copied().collect();
                AcceptorRecord::Access(Access::introduced(&founding, council, slot, members).unwrap())
            }
            9 => AcceptorRecord::AddresseeConnected(PublicKey::from_bytes([rng.u8(0..3); 32])),
            _ => AcceptorRecord::Mail(
                PublicKey::from_bytes([rng.u8(0..3); 32]),
                OperationId([rng.u8(0..3); 16]),
                bytes,
            ),
        };
        (council, stored)
    }

    fn batch(rng: &mut Rng) -> Vec<(CouncilId, AcceptorRecord)> {
        (0..rng.usize(1..8)).map(|_| record(rng)).collect()
    }

    fn holds(store: &Store, model: &Model) -> bool {
        (0..COUNCILS_USED).all(|number| store.load(council(number)).unwrap() == model.of(council(number)))
    }

    #[test]
    fn a_store_keeps_its_records_and_its_incarnation() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("acceptor.redb");
        let (mut rng, mut model) = (Rng::with_seed(1), Model::default());
        let mut incarnation = None;
        for _ in 0..4 {
            let mut store = Store::open(&path).unwrap();
            assert_eq!(*incarnation.get_or_insert(store.incarnation()), store.incarnation());
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
        assert_ne!(incarnation, Some(empty.incarnation()), "a new store has another incarnation");
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
    fn a_newer_format_is_not_opened() {
        let disk = FaultyDisk::default();
        let store = Store::open_with(disk.handle(), 1).unwrap();
        let transaction = store.database.begin_write().unwrap();
        transaction.open_table(ACCEPTOR).unwrap().insert("format", FORMAT + 1).unwrap();
        transaction.commit().unwrap();
        drop(store);
        assert_eq!(Store::open_with(disk.handle(), 1).unwrap_err(), StoreError::Format(FORMAT + 1));
    }

    /// `HOLDOFF_SEED=… cargo test -p holdoff-council --lib a_crash_loses_no` replays a seed.
    #[test]
    fn a_crash_loses_no_acknowledged_batch_and_splits_none() {
        let seeds = holdoff_testbed::Seeds::new(300, 300);
        let is_short = seeds.count() < 300;
        let (mut interrupted, mut survived) = (0, 0);
        for seed in seeds {
            let mut rng = Rng::with_seed(seed);
            let (disk, mut model, mut incarnation) = (FaultyDisk::default(), Model::default(), None);
            for boot in 0..6 {
                disk.lose_power_after(rng.u64(1..200));
                let opened = Store::open_with(disk.handle(), rng.u64(..));
                if let Ok(mut store) = opened {
                    assert_eq!(
                        *incarnation.get_or_insert(store.incarnation()),
                        store.incarnation(),
                        "seed {seed}"
                    );
                    for written in 0.. {
                        assert!(written < 200, "seed {seed}: the power did not fail in 200 writes");
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
                            "a store rejects all calls after a failed write"
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
                    assert_eq!(
                        *incarnation.get_or_insert(store.incarnation()),
                        store.incarnation(),
                        "seed {seed}"
                    );
                    assert!(holds(&store, &model), "seed {seed}, boot {boot}");
                }
            }
        }
        println!("{interrupted} writes interrupted, {survived} of them there all the same");
        assert!(is_short || (interrupted > 1000 && survived > 10));
    }

    #[test]
    fn a_store_is_unusable_after_a_failed_sync() {
        let disk = FaultyDisk::default();
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
        let (disk, mut rng) = (FaultyDisk::default(), Rng::with_seed(5));
        let mut store = Store::open_with(disk.handle(), 1).unwrap();
        let before = disk.syncs();
        for _ in 0..100 {
            store.write((0..50).map(|_| record(&mut rng))).unwrap();
        }
        let syncs = disk.syncs() - before;
        assert!((100..=110).contains(&syncs), "{syncs} syncs: one each, and a few for growing");
    }

    #[test]
    fn a_simulated_store_is_fast() {
        let mut rng = Rng::with_seed(9);
        let batches: Vec<_> = (0..100).map(|_| vec![record(&mut rng)]).collect();
        let begin = Instant::now();
        let mut store = Store::open_with(FaultyDisk::default().handle(), 1).unwrap();
        let opened = begin.elapsed();
        for batch in batches {
            store.write(batch).unwrap();
        }
        println!("opened in {opened:?}, opened and 100 times written in {:?}", begin.elapsed());
        assert!(begin.elapsed().as_millis() < 1000);
    }
}

//! The tables of a node on disk.
//!
//! There is one file for each ledger, and one transaction for all records of a batch: after a crash the batch is on disk
//! as a whole or not at all. Every row ends with a checksum of its bytes, so that a damaged row is detected when it is
//! read.
//!
//! | table | key | value |
//! |---|---|---|
//! | `metadata` | `format`, `incarnation` | a number |
//! | `identity` | `ledger`; `contacts`; `members` | the ledger's id and founder; the members to ask while the ledger is unknown; the members that one of them has listed |
//! | `log_state` | `promised`, `accepted`, `decided`, `snapshot`, `incomplete` | the state of the log; the description of a snapshot whose chunks this node receives |
//! | `log` | slot | an entry, since the snapshot |
//! | `chunks` | id of a snapshot, number | a chunk of its content |

use std::path::Path;
use std::sync::Arc;

use holdoff_disk::DiskError;
use holdoff_disk::store::{MetadataTable, OpenError, OpenStore, StoreSchema};
use holdoff_driver::Disk;
use holdoff_net::PublicKey;
use holdoff_paxos::log::{self, LogId, Record, Term};
use holdoff_paxos::{Configuration, NodeId, Slot};
use redb::{Database, Durability, ReadableDatabase, ReadableTable, Table, TableDefinition, WriteTransaction};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Error;
use super::identity::LedgerId;
use super::roster::LedgerMember;
#[cfg(test)]
use crate::entry::TransactionOf;
use crate::entry::{Hash, ReplicatedMachine};
use crate::ledger::{self, IncompleteSnapshot, Recovered, Refounding};
use crate::state::{Checkpoint, SnapshotContent, SnapshotDescription, snapshot_id};

const METADATA: MetadataTable = TableDefinition::new("metadata");
const IDENTITY: TableDefinition<'static, &'static str, &'static [u8]> = TableDefinition::new("identity");
const LOG_STATE: TableDefinition<'static, &'static str, &'static [u8]> = TableDefinition::new("log_state");
const LOG: TableDefinition<'static, u64, &'static [u8]> = TableDefinition::new("log");
const CHUNKS: TableDefinition<'static, (&'static [u8; 32], u64), &'static [u8]> =
    TableDefinition::new("chunks");

const PROMISED: &str = "promised";
const ACCEPTED: &str = "accepted";
const DECIDED: &str = "decided";
const SNAPSHOT: &str = "snapshot";
const INCOMPLETE: &str = "incomplete";
/// The maximum number of chunks that one transaction deletes.
const DELETED_TOGETHER: usize = 64;

/// The number of chunks that reach the disk together. A node that is killed while it receives a snapshot continues after them.
const SYNCED_TOGETHER: u64 = 16;

/// The format of the tables. A release reads only its own format.
const FORMAT: u64 = 7;
const SCHEMA: StoreSchema = StoreSchema {
    metadata: METADATA,
    formats: FORMAT..=FORMAT,
    cache_bytes: 32 * 1024 * 1024,
    create_tables,
};
/// The size of a row's checksum, in bytes.
const CHECKSUM_BYTES: usize = 8;
const CHECKSUM: &str = "holdoff ledger v1: a row on disk";

/// The store of one node in one ledger. Only one process can have it open.
///
/// After a failed write the content of the disk is unknown, and every later write fails.
#[derive(Debug)]
pub(super) struct Store {
    database: Arc<Database>,
    incarnation: u64,
    /// The last slot with a row in the log.
    last: Slot,
    failed: Option<Error>,
}

/// The identity of a ledger.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LedgerInfo {
    /// The id of the ledger.
    pub ledger: LedgerId,
    /// The node that created the ledger, which is the only voter of the first configuration.
    pub founder: NodeId,
    /// The last recovery, if there was one.
    pub refounded: Option<Refounding>,
}

impl LedgerInfo {
    /// Returns the first configuration.
    pub(super) fn voters(&self) -> Result<Configuration, Error> {
        Configuration::new([self.founder]).map_err(|error| Error::Disk(DiskError::new(error)))
    }
}

impl Store {
    /// Opens the store in this file, or creates an empty one.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        Self::from_open_store(SCHEMA.open(path).map_err(|error| match error {
            OpenError::InUse => Error::InUse(path.to_owned()),
            OpenError::Format(found) => Error::Format { found, known: FORMAT },
            OpenError::Disk(why) => Error::Disk(why),
            error @ (OpenError::NoMetadata | OpenError::SyncFailed(_)) => {
                Error::Disk(DiskError::at(path, error))
            }
        })?)
    }

    /// Creates a store in memory.
    pub(super) fn in_memory() -> Result<Self, Error> {
        Self::from_open_store(SCHEMA.in_memory().map_err(|error| Error::Disk(DiskError::new(error)))?)
    }

    /// Opens the store on this backend. An empty backend gets this incarnation.
    #[cfg(test)]
    pub(super) fn open_with(backend: impl redb::StorageBackend, fresh: u64) -> Result<Self, Error> {
        Self::from_open_store(
            SCHEMA.open_on(backend, fresh).map_err(|error| Error::Disk(DiskError::new(error)))?,
        )
    }

    fn from_open_store(OpenStore { database, incarnation }: OpenStore) -> Result<Self, Error> {
        let last = {
            let reading = database.begin_read().map_err(disk)?;
            let log = reading.open_table(LOG).map_err(disk)?;
            log.last().map_err(disk)?.map_or(Slot(0), |(slot, _)| Slot(slot.value()))
        };
        Ok(Self { database: Arc::new(database), incarnation, last, failed: None })
    }

    /// Returns the incarnation of the storage: a random number that is drawn when the store is created.
    pub(super) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Returns the ledger of this store, or `None` if the node does not know it yet.
    pub(super) fn ledger_info(&self) -> Result<Option<LedgerInfo>, Error> {
        self.read_identity("ledger")
    }

    /// Returns the members to ask for the ledger.
    pub(super) fn contacts<T: DeserializeOwned>(&self) -> Result<Option<T>, Error> {
        self.read_identity("contacts")
    }

    /// Returns true if the store has a ledger, or members to ask for one.
    pub(super) fn is_initialized(&self) -> Result<bool, Error> {
        Ok(self.ledger_info()?.is_some() || self.contacts::<Vec<super::PeerAddress>>()?.is_some())
    }

    fn read_identity<T: DeserializeOwned>(&self, what: &str) -> Result<Option<T>, Error> {
        let reading = self.database.begin_read().map_err(disk)?;
        let table = reading.open_table(IDENTITY).map_err(disk)?;
        let row = table.get(what).map_err(disk)?;
        row.map(|row| decode(row.value(), what)).transpose()
    }

    /// Returns the members that a contact has listed when this node joined.
    pub(super) fn listed_members(&self) -> Result<Vec<(PublicKey, LedgerMember)>, Error> {
        Ok(self.read_identity("members")?.unwrap_or_default())
    }

    /// Stores the ledger of this store, and the members that a contact has listed.
    pub(super) fn set_ledger(
        &self,
        info: &LedgerInfo,
        members: &[(PublicKey, LedgerMember)],
    ) -> Result<(), Error> {
        self.write_identity(&[("ledger", encode(info)?), ("members", encode(&members)?)])
    }

    /// Stores the records of a recovery and the identity that names it, in one transaction.
    pub(super) fn refound<V, S>(&mut self, info: &LedgerInfo, records: Vec<Record<V, S>>) -> Result<(), Error>
    where
        V: Serialize + DeserializeOwned,
        S: Serialize + DeserializeOwned,
    {
        self.transact(records, Some(encode(info)?))
    }

    /// Stores the members to ask for the ledger.
    pub(super) fn set_contacts(&self, contacts: &impl Serialize) -> Result<(), Error> {
        self.write_identity(&[("contacts", encode(contacts)?)])
    }

    fn write_identity(&self, rows: &[(&str, Vec<u8>)]) -> Result<(), Error> {
        let writing = self.database.begin_write().map_err(disk)?;
        {
            let mut table = writing.open_table(IDENTITY).map_err(disk)?;
            for (what, value) in rows {
                table.insert(*what, value.as_slice()).map_err(disk)?;
            }
        }
        writing.commit().map_err(disk)
    }

    /// Returns the chunks of snapshots in this store.
    pub(super) fn chunks(&self) -> ChunkStore {
        ChunkStore { database: self.database.clone() }
    }

    /// Loads the log for the core, the content of its snapshot, and the snapshot whose chunks were being received.
    pub(super) fn recover<M: ReplicatedMachine>(&self, info: &LedgerInfo) -> Result<Recovered<M>, Error> {
        let (store, chunks) = (self.load::<M>(info)?, self.chunks());
        let content = match snapshot_id(store.snapshot()).filter(|_| store.snapshot().last.slot > Slot(0)) {
            None => SnapshotContent::default(),
            Some(id) => chunks.load(id, store.snapshot().state.chunks)?.map_err(|number| {
                damaged(&format!("chunk {number} of the snapshot"), "it is missing or its content is wrong")
            })?,
        };
        Ok(Recovered { store, content, incomplete: chunks.incomplete()?, refounded: info.refounded })
    }

    /// Loads the whole log.
    fn load<M: ReplicatedMachine>(&self, info: &LedgerInfo) -> Result<ledger::Store<M>, Error> {
        let mut store = ledger::Store::<M>::new(info.voters()?, Checkpoint::default());
        let reading = self.database.begin_read().map_err(disk)?;
        let log_state = reading.open_table(LOG_STATE).map_err(disk)?;
        if let Some(row) = log_state.get(SNAPSHOT).map_err(disk)? {
            store.apply(Record::Snapshot(decode(row.value(), SNAPSHOT)?));
        }
        let log = reading.open_table(LOG).map_err(disk)?;
        for row in log.iter().map_err(disk)? {
            let (slot, entry) = row.map_err(disk)?;
            let slot = Slot(slot.value());
            if slot != store.last().next() {
                return Err(damaged(&format!("the entry at {slot}"), "the entry before it is missing"));
            }
            store.apply(Record::Entry { slot, entry: decode(entry.value(), "entry")? });
        }
        if let Some(row) = log_state.get(ACCEPTED).map_err(disk)? {
            let term: Term = decode(row.value(), ACCEPTED)?;
            store.apply(Record::Accepted { term, last: store.last() });
        }
        if let Some(row) = log_state.get(PROMISED).map_err(disk)? {
            store.apply(Record::Promised(decode(row.value(), PROMISED)?));
        }
        if let Some(row) = log_state.get(DECIDED).map_err(disk)? {
            store.apply(Record::Decided(decode(row.value(), DECIDED)?));
        }
        Ok(store)
    }

    fn transact<V, S>(&mut self, records: Vec<Record<V, S>>, ledger: Option<Vec<u8>>) -> Result<(), Error>
    where
        V: Serialize + DeserializeOwned,
        S: Serialize + DeserializeOwned,
    {
        let writing = self.database.begin_write().map_err(disk)?;
        {
            let mut tables = Tables::of(&writing, self.last)?;
            for record in records {
                tables.put(record)?;
            }
            self.last = tables.last;
            if let Some(ledger) = ledger {
                let mut identity = writing.open_table(IDENTITY).map_err(disk)?;
                identity.insert("ledger", ledger.as_slice()).map_err(disk)?;
            }
        }
        writing.commit().map_err(disk)
    }
}

impl<V, S> Disk<Record<V, S>> for Store
where
    V: Serialize + DeserializeOwned,
    S: Serialize + DeserializeOwned,
{
    type Error = Error;

    fn write(&mut self, records: Vec<Record<V, S>>) -> Result<(), Error> {
        if let Some(why) = &self.failed {
            return Err(why.clone());
        }
        self.transact(records, None).inspect_err(|error| self.failed = Some(error.clone()))
    }
}

/// The chunks of snapshots in a store. Clones refer to the same store.
#[derive(Clone, Debug)]
pub(super) struct ChunkStore {
    database: Arc<Database>,
}

impl ChunkStore {
    /// Stores a chunk. It reaches the disk with the next record of the log, or with a later chunk.
    pub(super) fn put(&self, snapshot: Hash, number: u64, bytes: &[u8]) -> Result<(), Error> {
        let mut writing = self.database.begin_write().map_err(disk)?;
        if !number.saturating_add(1).is_multiple_of(SYNCED_TOGETHER) {
            writing.set_durability(Durability::None).map_err(disk)?;
        }
        {
            let mut table = writing.open_table(CHUNKS).map_err(disk)?;
            let mut row = bytes.to_vec();
            row.extend(checksum(bytes));
            table.insert((&snapshot.0, number), row.as_slice()).map_err(disk)?;
        }
        writing.commit().map_err(disk)
    }

    /// Returns a chunk. Returns `None` if it is missing or damaged.
    pub(super) fn get(&self, snapshot: Hash, number: u64) -> Result<Option<Vec<u8>>, Error> {
        let reading = self.database.begin_read().map_err(disk)?;
        let table = reading.open_table(CHUNKS).map_err(disk)?;
        let row = table.get((&snapshot.0, number)).map_err(disk)?;
        let intact = row.and_then(|row| {
            let (bytes, expected) = row.value().split_last_chunk()?;
            (checksum(bytes) == *expected).then(|| bytes.to_vec())
        });
        Ok(intact)
    }

    /// Loads the content of a snapshot, up to the first chunk that is intact and cannot be decoded. The inner error is the
    /// number of a chunk that is missing or damaged.
    pub(super) fn load<M: ReplicatedMachine>(
        &self,
        snapshot: Hash,
        chunks: u64,
    ) -> Result<Result<SnapshotContent<M>, u64>, Error> {
        let mut content = SnapshotContent::default();
        for number in 0..chunks {
            let Some(chunk) = self.get(snapshot, number)? else { return Ok(Err(number)) };
            if content.add_chunk(&chunk).is_err() {
                break;
            }
        }
        Ok(Ok(content))
    }

    /// Stores the description of the snapshot whose chunks are received from now on.
    pub(super) fn expect(&self, snapshot: Option<&SnapshotDescription>) -> Result<(), Error> {
        let writing = self.database.begin_write().map_err(disk)?;
        {
            let mut log_state = writing.open_table(LOG_STATE).map_err(disk)?;
            match snapshot {
                Some(snapshot) => log_state.insert(INCOMPLETE, encode(snapshot)?.as_slice()).map(drop),
                None => log_state.remove(INCOMPLETE).map(drop),
            }
            .map_err(disk)?;
        }
        writing.commit().map_err(disk)
    }

    /// Returns the snapshot whose chunks were being received, and the number of chunks that are here.
    fn incomplete(&self) -> Result<Option<IncompleteSnapshot>, Error> {
        let Some(snapshot) = self.description(INCOMPLETE)? else { return Ok(None) };
        let mut chunks = 0;
        if let Some(id) = snapshot_id(&snapshot) {
            while chunks < snapshot.state.chunks && self.get(id, chunks)?.is_some() {
                chunks += 1;
            }
        }
        Ok(Some(IncompleteSnapshot { snapshot, chunks }))
    }

    fn description(&self, what: &str) -> Result<Option<SnapshotDescription>, Error> {
        let reading = self.database.begin_read().map_err(disk)?;
        let log_state = reading.open_table(LOG_STATE).map_err(disk)?;
        let row = log_state.get(what).map_err(disk)?;
        row.map(|row| decode(row.value(), what)).transpose()
    }

    /// Deletes the chunks of all snapshots except the log's, the one that is received, and these.
    pub(super) fn delete_unused(&self, mut kept: Vec<Hash>) -> Result<(), Error> {
        for what in [SNAPSHOT, INCOMPLETE] {
            kept.extend(self.description(what)?.as_ref().and_then(snapshot_id));
        }
        let mut has_more = true;
        while has_more {
            let mut writing = self.database.begin_write().map_err(disk)?;
            writing.set_durability(Durability::None).map_err(disk)?;
            {
                let mut table = writing.open_table(CHUNKS).map_err(disk)?;
                let is_unused = |(id, _): (&[u8; 32], u64), _: &[u8]| !kept.contains(&Hash(*id));
                let deleted = table.extract_if(is_unused).map_err(disk)?.take(DELETED_TOGETHER).count();
                has_more = deleted == DELETED_TOGETHER;
            }
            writing.commit().map_err(disk)?;
        }
        Ok(())
    }
}

/// The tables of one transaction.
struct Tables<'t> {
    log_state: Table<'t, &'static str, &'static [u8]>,
    log: Table<'t, u64, &'static [u8]>,
    last: Slot,
}

impl<'t> Tables<'t> {
    fn of(writing: &'t WriteTransaction, last: Slot) -> Result<Self, Error> {
        let (log_state, log) =
            (writing.open_table(LOG_STATE).map_err(disk)?, writing.open_table(LOG).map_err(disk)?);
        Ok(Self { log_state, log, last })
    }

    fn put<V: Serialize + DeserializeOwned, S: Serialize + DeserializeOwned>(
        &mut self,
        record: Record<V, S>,
    ) -> Result<(), Error> {
        match record {
            Record::Promised(promises) => self.put_state(PROMISED, &promises),
            Record::Accepted { term, last } => {
                self.truncate_after(last)?;
                self.put_state(ACCEPTED, &term)
            }
            Record::Entry { slot, entry } => {
                self.truncate_after(Slot(slot.0.saturating_sub(1)))?;
                self.log.insert(slot.0, encode(&entry)?.as_slice()).map_err(disk)?;
                self.last = slot;
                Ok(())
            }
            Record::Decided(slot) => self.put_state(DECIDED, &slot),
            Record::Snapshot(snapshot) => self.install_snapshot(&snapshot),
        }
    }

    fn put_state(&mut self, what: &'static str, value: &impl Serialize) -> Result<(), Error> {
        self.log_state.insert(what, encode(value)?.as_slice()).map(drop).map_err(disk)
    }

    /// Removes the entries after a slot.
    fn truncate_after(&mut self, last: Slot) -> Result<(), Error> {
        if last < self.last {
            self.log.retain_in(last.next().0.., |_, _| false).map_err(disk)?;
            self.last = self.log.last().map_err(disk)?.map_or(Slot(0), |(slot, _)| Slot(slot.value()));
        }
        Ok(())
    }

    /// Replaces the entries up to the snapshot's last slot. The later entries stay if they continue from the snapshot.
    fn install_snapshot<S: Serialize + DeserializeOwned>(
        &mut self,
        snapshot: &log::Snapshot<S>,
    ) -> Result<(), Error> {
        let through = snapshot.last.slot;
        if self.contains(snapshot.last)? {
            self.log.retain_in(..=through.0, |_, _| false).map_err(disk)?;
        } else {
            self.log.retain(|_, _| false).map_err(disk)?;
        }
        self.last = self.log.last().map_err(disk)?.map_or(Slot(0), |(slot, _)| Slot(slot.value()));
        self.put_state(SNAPSHOT, snapshot)
    }

    /// Returns true if the log on disk contains this entry.
    fn contains(&self, last: LogId) -> Result<bool, Error> {
        if let Some(row) = self.log.get(last.slot.0).map_err(disk)? {
            // An entry begins with its term.
            let (term, _) = postcard::take_from_bytes::<Term>(row.value()).map_err(unreadable)?;
            return Ok(term == last.term);
        }
        let Some(row) = self.log_state.get(SNAPSHOT).map_err(disk)? else {
            return Ok(last == LogId { slot: Slot(0), term: Term::none() });
        };
        // A snapshot begins with its last entry.
        let (base, _) = postcard::take_from_bytes::<LogId>(row.value()).map_err(unreadable)?;
        Ok(base == last)
    }
}

fn create_tables(writing: &WriteTransaction) -> Result<(), redb::TableError> {
    writing.open_table(IDENTITY)?;
    writing.open_table(LOG_STATE)?;
    writing.open_table(CHUNKS)?;
    writing.open_table(LOG).map(drop)
}

/// Encodes a value, followed by its checksum.
fn encode(value: &impl Serialize) -> Result<Vec<u8>, Error> {
    let mut bytes = postcard::to_stdvec(value).map_err(|error| Error::Disk(DiskError::new(error)))?;
    let checksum = checksum(&bytes);
    bytes.extend(checksum);
    Ok(bytes)
}

/// Decodes a value, and verifies its checksum.
fn decode<T: DeserializeOwned>(bytes: &[u8], what: &str) -> Result<T, Error> {
    let (bytes, expected) = bytes.split_last_chunk().ok_or_else(|| damaged(what, "it is truncated"))?;
    if checksum(bytes) != *expected {
        return Err(damaged(what, "its checksum does not match"));
    }
    postcard::from_bytes(bytes)
        .map_err(|error| Error::Disk(DiskError::within(&format!("{what} is damaged"), error)))
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let mut checksum = [0; CHECKSUM_BYTES];
    blake3::Hasher::new_derive_key(CHECKSUM).update(bytes).finalize_xof().fill(&mut checksum);
    checksum
}

fn damaged(what: &str, why: &str) -> Error {
    Error::Disk(DiskError::new(format!("{what} is damaged: {why}")))
}

fn unreadable(error: postcard::Error) -> Error {
    Error::Disk(DiskError::within("failed to decode a row", error))
}

fn disk(error: impl Into<redb::Error>) -> Error {
    Error::Disk(DiskError::new(error.into()))
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;
    use holdoff_disk::faulty::FaultyDisk;
    use holdoff_net::SecretKey;
    use holdoff_paxos::log::EntryPayload;

    use super::*;
    use crate::dedup::DedupLimits;
    use crate::entry::TxId;
    use crate::machine::{Command, Key as Name, KeyValue, StateMachine};
    use crate::state::State;
    use holdoff_paxos::NodeId;

    type Model = ledger::Store<KeyValue>;
    type StoreRecord = ledger::Record<KeyValue>;

    fn info() -> LedgerInfo {
        LedgerInfo {
            ledger: LedgerId([3; 16]),
            founder: NodeId::derive(SecretKey::from_secret(&[1; 32]).public().as_bytes(), 1),
            refounded: None,
        }
    }

    fn empty() -> Model {
        Model::new(info().voters().unwrap(), Checkpoint::default())
    }

    fn term(attempt: u64) -> Term {
        Term::new(Slot(1), attempt, info().founder)
    }

    /// Returns an arbitrary entry.
    fn entry(rng: &mut Rng, slot: Slot) -> log::Entry<TransactionOf<KeyValue>> {
        let goal = vec![Command::Increment(Name::new("sum").unwrap(), rng.i64(-9..9))];
        let (diff, answer) = KeyValue::default().execute(&<_>::default(), &goal).unwrap();
        let state_hash = KeyValue::default().hash(&<_>::default());
        let (term, tx_id) = (term(rng.u64(1..4)), TxId(rng.u128(..)));
        let prev_hash = <_>::default();
        let value = crate::Transaction {
            index: slot,
            term,
            prev_hash,
            tx_id,
            goal,
            diff,
            result: Ok(answer),
            state_hash,
        };
        log::Entry { term, payload: if rng.bool() { EntryPayload::Value(value) } else { EntryPayload::NoOp } }
    }

    /// Returns a record that the core could write next.
    fn record(rng: &mut Rng, model: &Model) -> StoreRecord {
        let (base, last) = (model.snapshot().last.slot.0, model.last().0);
        match rng.u32(..20) {
            0 => Record::Promised(term(rng.u64(1..9)).into()),
            1 => Record::Accepted { term: term(rng.u64(1..9)), last: Slot(rng.u64(base..=last)) },
            2 => Record::Decided(Slot(rng.u64(base..=last))),
            3 if rng.bool() => Record::Snapshot(snapshot(model, Slot(rng.u64(base..=last)), 0)),
            // A snapshot of another log, beyond this one.
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

    fn snapshot(model: &Model, slot: Slot, other: u64) -> SnapshotDescription {
        let here = model.entry(slot).map(|entry| entry.term);
        let term = here.filter(|_| other == 0).unwrap_or_else(|| term(other.max(1)));
        let last = if slot == model.snapshot().last.slot && other == 0 {
            model.snapshot().last
        } else {
            LogId { slot, term }
        };
        let (state, _) =
            State::<KeyValue>::new(info().voters().unwrap(), DedupLimits::default()).checkpoint();
        SnapshotDescription { last, start: Slot(1), configuration: info().voters().unwrap(), state }
    }

    fn applied(records: &[StoreRecord], mut model: Model) -> Model {
        for record in records {
            model.apply(record.clone());
        }
        model
    }

    /// Compares two logs, except for the decided index, which need not be stored.
    fn same(found: &Model, expected: &Model) -> bool {
        let of = |store: &Model| {
            let first = store.snapshot().last.slot.0 + 1;
            let entries: Vec<_> =
                (first..=store.last().0).map(|slot| store.entry(Slot(slot)).cloned()).collect();
            (store.promised(), store.accepted(), store.snapshot().clone(), entries)
        };
        of(found) == of(expected) && found.decided() >= expected.snapshot().last.slot
    }

    #[test]
    fn a_crash_at_any_point_leaves_whole_batches() {
        for seed in 0..150 {
            let (disk, mut rng, mut model) = (FaultyDisk::default(), Rng::with_seed(seed), empty());
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
                        if store.write(pending.clone()).is_err() {
                            break;
                        }
                        model = next;
                        pending.clear();
                    }
                }
                disk.crash(|| rng.u32(..));
                let found = Store::open_with(disk.handle(), 1).unwrap().load::<KeyValue>(&info()).unwrap();
                let with_the_last = applied(&pending, model.clone());
                assert!(
                    same(&found, &model) || same(&found, &with_the_last),
                    "seed {seed}: found {found:#?}\nexpected {model:#?}"
                );
                model = if same(&found, &model) { model } else { with_the_last };
            }
        }
    }

    #[test]
    fn a_store_rejects_writes_after_a_failed_write() {
        let disk = FaultyDisk::default();
        let mut store = Store::open_with(disk.handle(), 1).unwrap();
        disk.stop_syncing();
        let promise = || vec![StoreRecord::Promised(term(1).into())];
        assert!(store.write(promise()).is_err());
        assert!(matches!(store.write(promise()), Err(Error::Disk(_))));
    }

    #[test]
    fn damaged_rows_are_detected() {
        let mut store = Store::in_memory().unwrap();
        let mut rng = Rng::with_seed(1);
        store.write(vec![StoreRecord::Entry { slot: Slot(1), entry: entry(&mut rng, Slot(1)) }]).unwrap();
        store.load::<KeyValue>(&info()).unwrap();
        let damage = |change: fn(&mut Vec<u8>)| {
            let writing = store.database.begin_write().unwrap();
            {
                let mut log = writing.open_table(LOG).unwrap();
                let mut bytes = log.get(1).unwrap().unwrap().value().to_vec();
                change(&mut bytes);
                log.insert(1, bytes.as_slice()).unwrap();
            }
            writing.commit().unwrap();
            store.load::<KeyValue>(&info()).unwrap_err().to_string()
        };
        assert!(damage(|bytes| bytes[0] ^= 1).contains("entry is damaged: its checksum does not match"));
        assert!(damage(|bytes| bytes.truncate(3)).contains("truncated"));
    }

    #[test]
    fn a_restarted_node_counts_intact_chunks_up_to_the_first_damaged_one() {
        let store = Store::in_memory().unwrap();
        let mut snapshot = snapshot(&empty(), Slot(9), 7);
        snapshot.state.chunks = 5;
        let (chunks, id) = (store.chunks(), snapshot_id(&snapshot).unwrap());
        chunks.expect(Some(&snapshot)).unwrap();
        (0..5).for_each(|number| chunks.put(id, number, &[7; 100]).unwrap());
        let found = || store.recover::<KeyValue>(&info()).unwrap().incomplete.map(|it| it.chunks);
        assert_eq!(found(), Some(5));
        let writing = store.database.begin_write().unwrap();
        writing.open_table(CHUNKS).unwrap().insert((&id.0, 3), [7; 50].as_slice()).unwrap();
        writing.commit().unwrap();
        assert_eq!(found(), Some(3));
        chunks.expect(None).unwrap();
        chunks.delete_unused(Vec::new()).unwrap();
        assert_eq!((found(), chunks.get(id, 0).unwrap()), (None, None));
    }

    #[test]
    fn a_missing_entry_is_detected() {
        let mut store = Store::in_memory().unwrap();
        let mut rng = Rng::with_seed(2);
        let put =
            |slot: u64, rng: &mut Rng| StoreRecord::Entry { slot: Slot(slot), entry: entry(rng, Slot(slot)) };
        store.write(vec![put(1, &mut rng), put(3, &mut rng)]).unwrap();
        let why = store.load::<KeyValue>(&info()).unwrap_err().to_string();
        assert!(why.contains("the entry at 3 is damaged: the entry before it is missing"), "{why}");
    }
}

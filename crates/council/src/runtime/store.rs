//! The store of a device.
//!
//! It is one file. All records of a step are one transaction: after a crash either all of them are there or none.
//!
//! | table | key | value |
//! |---|---|---|
//! | `numbers` | `format`, `incarnation`; `reserved slot`, `reserved attempt` | a number; attempts that may be used |
//! | `identity` | `council`, `key` | the council, and the current key of the device |
//! | `pending` | operation | a change, its mail, the birth slot |
//! | `attempts` | slot | the highest attempt |
//! | `applied` | slot | a value, since the snapshot |
//! | `snapshot` | nothing | a slot and the state after it |
//! | `mail` | operation | a mail message to post |

use std::path::Path;
use std::sync::Arc;

use holdoff_disk::DiskError;
use holdoff_disk::store::{MetadataTable, OpenError, OpenStore, StoreSchema};
use holdoff_driver::Disk;
use holdoff_paxos::Slot;
use holdoff_paxos::slot::BallotRecord;
use redb::{ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Error;
use crate::{AttemptReserve, CouncilId, CouncilSnapshot, Mail, OperationId, PublicKey, Record, SlotValue};

type Rows = TableDefinition<'static, &'static [u8], &'static [u8]>;
type Slots = TableDefinition<'static, u64, &'static [u8]>;

const METADATA: MetadataTable = TableDefinition::new("metadata");
const IDENTITY: TableDefinition<'static, &'static str, &'static [u8]> = TableDefinition::new("identity");
const PENDING: Rows = TableDefinition::new("pending");
const ATTEMPTS: TableDefinition<'static, u64, u64> = TableDefinition::new("attempts");
const APPLIED: Slots = TableDefinition::new("applied");
const SNAPSHOT: Rows = TableDefinition::new("snapshot");
const MAIL: Rows = TableDefinition::new("mail");

const RESERVED: [&str; 2] = ["reserved slot", "reserved attempt"];

/// The format of the tables. A release reads its own format and earlier ones. Formats before the third were never
/// released.
const FORMAT: u64 = 3;
const FIRST: u64 = 3;
const SCHEMA: StoreSchema =
    StoreSchema { metadata: METADATA, formats: FIRST..=FORMAT, cache_bytes: 4 * 1024 * 1024, create_tables };

/// The store of one device. Only one process can have it open.
#[derive(Debug)]
pub(super) struct Store(OpenStore);

/// The identity of a device.
#[derive(Clone, Debug)]
pub(super) struct DeviceIdentity {
    pub(super) council: CouncilId,
    /// The current key of the device.
    pub(super) key: PublicKey,
}

impl Store {
    /// Opens the store in this file, and creates an empty one if it does not exist.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        SCHEMA.open(path).map(Self).map_err(|error| match error {
            OpenError::InUse => Error::InUse(path.to_owned()),
            OpenError::Format(found) => Error::Format { found, known: FORMAT },
            OpenError::Disk(why) => Error::Disk(why),
            error @ (OpenError::NoMetadata | OpenError::SyncFailed(_)) => {
                Error::Disk(DiskError::at(path, error))
            }
        })
    }

    /// Opens the store on a storage backend. An empty store gets this incarnation.
    #[cfg(test)]
    fn open_with(backend: impl redb::StorageBackend, fresh: u64) -> Result<Self, Error> {
        SCHEMA.open_on(backend, fresh).map(Self).map_err(|error| Error::Disk(DiskError::new(error)))
    }

    /// Returns the incarnation of the store, drawn when it was created.
    pub(super) fn incarnation(&self) -> u64 {
        self.0.incarnation
    }

    /// Returns the identity of the device; `None` if it has no council yet.
    pub(super) fn identity(&self) -> Result<Option<DeviceIdentity>, Error> {
        let transaction = self.0.database.begin_read().map_err(disk)?;
        let table = transaction.open_table(IDENTITY).map_err(disk)?;
        let (council, key) = (table.get("council").map_err(disk)?, table.get("key").map_err(disk)?);
        let (Some(council), Some(key)) = (council, key) else { return Ok(None) };
        Ok(Some(DeviceIdentity { council: decode(council.value())?, key: decode(key.value())? }))
    }

    /// Stores the identity and the first state of a new device.
    pub(super) fn initialize(&self, identity: &DeviceIdentity, state: &CouncilSnapshot) -> Result<(), Error> {
        let transaction = self.0.database.begin_write().map_err(disk)?;
        {
            let mut table = transaction.open_table(IDENTITY).map_err(disk)?;
            table.insert("council", encode(&identity.council)?.as_slice()).map_err(disk)?;
            table.insert("key", encode(&identity.key)?.as_slice()).map_err(disk)?;
        }
        keep_snapshot(&transaction, state)?;
        transaction.commit().map_err(disk)
    }

    /// Stores the new key of the device.
    pub(super) fn set_key(&self, key: &PublicKey) -> Result<(), Error> {
        let transaction = self.0.database.begin_write().map_err(disk)?;
        {
            let mut table = transaction.open_table(IDENTITY).map_err(disk)?;
            table.insert("key", encode(key)?.as_slice()).map_err(disk)?;
        }
        transaction.commit().map_err(disk)
    }

    /// Stores the records in one transaction. They are on disk when this function returns.
    pub(super) fn put_all<W: Serialize>(&self, records: Vec<Record<W>>) -> Result<(), Error> {
        let transaction = self.0.database.begin_write().map_err(disk)?;
        for record in records {
            put(&transaction, record)?;
        }
        transaction.commit().map_err(disk)
    }

    /// Returns the stored snapshot.
    pub(super) fn snapshot(&self) -> Result<Option<CouncilSnapshot>, Error> {
        let mut found = None;
        self.each(SNAPSHOT, |_, value| {
            found = Some(decode(value)?);
            Ok(())
        })?;
        Ok(found)
    }

    /// Returns all other records, in the order in which a device restores them.
    pub(super) fn load<W: DeserializeOwned>(&self) -> Result<Vec<Record<W>>, Error> {
        let mut found = Vec::new();
        let transaction = self.0.database.begin_read().map_err(disk)?;
        let applied = transaction.open_table(APPLIED).map_err(disk)?;
        for row in applied.iter().map_err(disk)? {
            let (slot, value) = row.map_err(disk)?;
            let value: SlotValue = decode(value.value())?;
            found.push(Record::Applied { slot: Slot(slot.value()), value });
        }
        let numbers = transaction.open_table(METADATA).map_err(disk)?;
        let [slot, attempt] = RESERVED;
        let reserved = (numbers.get(slot).map_err(disk)?, numbers.get(attempt).map_err(disk)?);
        if let (Some(slot), Some(attempt)) = reserved {
            found.push(Record::Reserved(AttemptReserve {
                through: Slot(slot.value()),
                attempt: attempt.value(),
            }));
        }
        let attempts = transaction.open_table(ATTEMPTS).map_err(disk)?;
        for row in attempts.iter().map_err(disk)? {
            let (slot, attempt) = row.map_err(disk)?;
            let (slot, attempt) = (Slot(slot.value()), attempt.value());
            found.push(Record::Attempt(BallotRecord { slot, attempt }));
        }
        self.each(PENDING, |id, value| {
            let (change, mail, birth_slot): (W, Option<Mail>, Slot) = decode(value)?;
            found.push(Record::Submitted { id: decode(id)?, change, mail, birth_slot });
            Ok(())
        })?;
        self.each(MAIL, |id, value| {
            found.push(Record::Mail { id: decode(id)?, mail: decode(value)? });
            Ok(())
        })?;
        Ok(found)
    }

    fn each(&self, rows: Rows, mut take: impl FnMut(&[u8], &[u8]) -> Result<(), Error>) -> Result<(), Error> {
        let transaction = self.0.database.begin_read().map_err(disk)?;
        let table = transaction.open_table(rows).map_err(disk)?;
        for row in table.iter().map_err(disk)? {
            let (key, value) = row.map_err(disk)?;
            take(key.value(), value.value())?;
        }
        Ok(())
    }
}

impl<W: Serialize> Disk<Record<W>> for Arc<Store> {
    type Error = Error;

    fn write(&mut self, records: Vec<Record<W>>) -> Result<(), Error> {
        self.put_all(records)
    }
}

fn create_tables(writing: &WriteTransaction) -> Result<(), redb::TableError> {
    writing.open_table(IDENTITY)?;
    writing.open_table(APPLIED)?;
    writing.open_table(ATTEMPTS)?;
    [PENDING, SNAPSHOT, MAIL].into_iter().try_for_each(|rows| writing.open_table(rows).map(drop))
}

fn put<W: Serialize>(transaction: &WriteTransaction, record: Record<W>) -> Result<(), Error> {
    match record {
        Record::Submitted { id, change, mail, birth_slot } => {
            insert(transaction, PENDING, &id, &encode(&(change, mail, birth_slot))?)
        }
        Record::Ended { id } => remove(transaction, PENDING, &id),
        Record::Attempt(BallotRecord { slot, attempt }) => {
            let mut table = transaction.open_table(ATTEMPTS).map_err(disk)?;
            let before = table.get(slot.0).map_err(disk)?.map_or(0, |row| row.value());
            table.insert(slot.0, attempt.max(before)).map(drop).map_err(disk)
        }
        Record::Reserved(reserve) => {
            let mut numbers = transaction.open_table(METADATA).map_err(disk)?;
            let [slot, attempt] = RESERVED;
            numbers.insert(slot, reserve.through.0).map_err(disk)?;
            numbers.insert(attempt, reserve.attempt).map(drop).map_err(disk)
        }
        Record::Applied { slot, value } => {
            let mut attempts = transaction.open_table(ATTEMPTS).map_err(disk)?;
            attempts.retain_in(..=slot.0, |_, _| false).map_err(disk)?;
            let mut table = transaction.open_table(APPLIED).map_err(disk)?;
            table.insert(slot.0, encode(&value)?.as_slice()).map(drop).map_err(disk)
        }
        Record::Snapshot(snapshot) => keep_snapshot(transaction, &snapshot),
        Record::Mail { id, mail } => insert(transaction, MAIL, &id, &encode(&mail)?),
        Record::Posted { id } => remove(transaction, MAIL, &id),
    }
}

/// Stores a snapshot and deletes the slots that it covers.
fn keep_snapshot(transaction: &WriteTransaction, snapshot: &CouncilSnapshot) -> Result<(), Error> {
    let last = snapshot.slot.0;
    let mut applied = transaction.open_table(APPLIED).map_err(disk)?;
    applied.retain_in(..=last, |_, _| false).map_err(disk)?;
    let mut attempts = transaction.open_table(ATTEMPTS).map_err(disk)?;
    attempts.retain_in(..=last, |_, _| false).map_err(disk)?;
    let mut table = transaction.open_table(SNAPSHOT).map_err(disk)?;
    table.insert(b"".as_slice(), encode(snapshot)?.as_slice()).map(drop).map_err(disk)
}

fn insert(transaction: &WriteTransaction, rows: Rows, id: &OperationId, value: &[u8]) -> Result<(), Error> {
    let mut table = transaction.open_table(rows).map_err(disk)?;
    table.insert(id.0.as_slice(), value).map(drop).map_err(disk)
}

fn remove(transaction: &WriteTransaction, rows: Rows, id: &OperationId) -> Result<(), Error> {
    let mut table = transaction.open_table(rows).map_err(disk)?;
    table.remove(id.0.as_slice()).map(drop).map_err(disk)
}

fn encode(what: &impl Serialize) -> Result<Vec<u8>, Error> {
    postcard::to_allocvec(what).map_err(|error| Error::Disk(DiskError::new(error)))
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    postcard::from_bytes(bytes)
        .map_err(|error| Error::Disk(DiskError::within("a row cannot be decoded", error)))
}

fn disk(error: impl Into<redb::Error>) -> Error {
    Error::Disk(DiskError::new(error.into()))
}

#[cfg(test)]
mod tests;

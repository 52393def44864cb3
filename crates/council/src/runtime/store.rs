//! What a device has on disk.
//!
//! One file, and one transaction for all that a step stores: it is there as a whole after a crash, or not at all.
//!
//! | table | key | value |
//! |---|---|---|
//! | `numbers` | `format`, `life`; `reserved slot`, `reserved attempt` | a number; attempts that may be used |
//! | `about` | `council`, `key` | which council, and by which of its keys the device goes |
//! | `pending` | operation | a wish, its letter, the slot it was born after |
//! | `attempts` | slot | the highest attempt |
//! | `applied` | slot | a value, since the snapshot |
//! | `snapshot` | nothing | a slot and the state after it |
//! | `letters` | operation | a letter that is to be posted |

use std::path::Path;

use holdoff_disk::store::{Form, Numbers, OpenError, Opened};
use holdoff_paxos::Slot;
use holdoff_paxos::slot::Attempt;
use redb::{ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Error;
use crate::{CouncilId, Letter, OperationId, PublicKey, Record, Reserve, Snapshot, Value};

type Rows = TableDefinition<'static, &'static [u8], &'static [u8]>;
type Slots = TableDefinition<'static, u64, &'static [u8]>;

const NUMBERS: Numbers = TableDefinition::new("numbers");
const ABOUT: TableDefinition<'static, &'static str, &'static [u8]> = TableDefinition::new("about");
const PENDING: Rows = TableDefinition::new("pending");
const ATTEMPTS: TableDefinition<'static, u64, u64> = TableDefinition::new("attempts");
const APPLIED: Slots = TableDefinition::new("applied");
const SNAPSHOT: Rows = TableDefinition::new("snapshot");
const LETTERS: Rows = TableDefinition::new("letters");

const RESERVED: [&str; 2] = ["reserved slot", "reserved attempt"];

/// The form of the tables. A release reads its own and earlier ones.
const FORMAT: u64 = 1;
const FORM: Form = Form { numbers: NUMBERS, formats: 1..=FORMAT, cache_bytes: 4 * 1024 * 1024, make_tables };

/// The disk of one device. Who has it open keeps everybody else out.
#[derive(Debug)]
pub(super) struct Store(Opened);

/// What a device's disk says about it.
#[derive(Clone, Debug)]
pub(super) struct About {
    pub(super) council: CouncilId,
    /// By which of its keys it went last.
    pub(super) key: PublicKey,
}

impl Store {
    /// Opens the store in this file, or makes an empty one.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        FORM.open(path).map(Self).map_err(|error| match error {
            OpenError::InUse => Error::InUse(path.to_owned()),
            OpenError::Format(found) => Error::Later { found, known: FORMAT },
            OpenError::Disk(why) => Error::Disk(why),
        })
    }

    /// Opens the store on something like a file. If it is empty, this is the life it begins.
    #[cfg(test)]
    fn open_with(backend: impl redb::StorageBackend, fresh: u64) -> Result<Self, Error> {
        FORM.open_on(backend, fresh).map(Self).map_err(|error| Error::Disk(error.to_string()))
    }

    /// Which life of the storage this is, drawn when it was made.
    pub(super) fn life(&self) -> u64 {
        self.0.life
    }

    /// Which council this is a device of; `None` if of none yet.
    pub(super) fn about(&self) -> Result<Option<About>, Error> {
        let transaction = self.0.database.begin_read().map_err(disk)?;
        let table = transaction.open_table(ABOUT).map_err(disk)?;
        let (council, key) = (table.get("council").map_err(disk)?, table.get("key").map_err(disk)?);
        let (Some(council), Some(key)) = (council, key) else { return Ok(None) };
        Ok(Some(About { council: decode(council.value())?, key: decode(key.value())? }))
    }

    /// Begins as a device of a council, in this state.
    pub(super) fn enter(&self, about: &About, state: &Snapshot) -> Result<(), Error> {
        let transaction = self.0.database.begin_write().map_err(disk)?;
        {
            let mut table = transaction.open_table(ABOUT).map_err(disk)?;
            table.insert("council", encode(&about.council)?.as_slice()).map_err(disk)?;
            table.insert("key", encode(&about.key)?.as_slice()).map_err(disk)?;
        }
        keep_snapshot(&transaction, state)?;
        transaction.commit().map_err(disk)
    }

    /// From now on the device goes by this key.
    pub(super) fn go_by(&self, key: &PublicKey) -> Result<(), Error> {
        let transaction = self.0.database.begin_write().map_err(disk)?;
        {
            let mut table = transaction.open_table(ABOUT).map_err(disk)?;
            table.insert("key", encode(key)?.as_slice()).map_err(disk)?;
        }
        transaction.commit().map_err(disk)
    }

    /// Stores all of it at once. When this returns it is on disk.
    pub(super) fn write<W: Serialize>(
        &self,
        records: impl IntoIterator<Item = Record<W>>,
    ) -> Result<(), Error> {
        let transaction = self.0.database.begin_write().map_err(disk)?;
        for record in records {
            put(&transaction, record)?;
        }
        transaction.commit().map_err(disk)
    }

    /// The state that is stored as a whole.
    pub(super) fn snapshot(&self) -> Result<Option<Snapshot>, Error> {
        let mut found = None;
        self.each(SNAPSHOT, |_, value| {
            found = Some(decode(value)?);
            Ok(())
        })?;
        Ok(found)
    }

    /// Everything else that is stored, in an order in which a device can take it up.
    pub(super) fn load<W: DeserializeOwned>(&self) -> Result<Vec<Record<W>>, Error> {
        let mut found = Vec::new();
        let transaction = self.0.database.begin_read().map_err(disk)?;
        let applied = transaction.open_table(APPLIED).map_err(disk)?;
        for row in applied.iter().map_err(disk)? {
            let (slot, value) = row.map_err(disk)?;
            let value: Value = decode(value.value())?;
            found.push(Record::Applied { slot: Slot(slot.value()), value });
        }
        let numbers = transaction.open_table(NUMBERS).map_err(disk)?;
        let [slot, attempt] = RESERVED;
        let reserved = (numbers.get(slot).map_err(disk)?, numbers.get(attempt).map_err(disk)?);
        if let (Some(slot), Some(attempt)) = reserved {
            found.push(Record::Reserved(Reserve { through: Slot(slot.value()), attempt: attempt.value() }));
        }
        let attempts = transaction.open_table(ATTEMPTS).map_err(disk)?;
        for row in attempts.iter().map_err(disk)? {
            let (slot, attempt) = row.map_err(disk)?;
            let (slot, attempt) = (Slot(slot.value()), attempt.value());
            found.push(Record::Attempt(Attempt { slot, attempt }));
        }
        self.each(PENDING, |id, value| {
            let (wish, letter, born): (W, Option<Letter>, Slot) = decode(value)?;
            found.push(Record::Submitted { id: decode(id)?, wish, letter, born });
            Ok(())
        })?;
        self.each(LETTERS, |id, value| {
            found.push(Record::Letter { id: decode(id)?, letter: decode(value)? });
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

fn make_tables(writing: &WriteTransaction) -> Result<(), redb::TableError> {
    writing.open_table(ABOUT)?;
    writing.open_table(APPLIED)?;
    writing.open_table(ATTEMPTS)?;
    [PENDING, SNAPSHOT, LETTERS].into_iter().try_for_each(|rows| writing.open_table(rows).map(drop))
}

fn put<W: Serialize>(transaction: &WriteTransaction, record: Record<W>) -> Result<(), Error> {
    match record {
        Record::Submitted { id, wish, letter, born } => {
            insert(transaction, PENDING, &id, &encode(&(wish, letter, born))?)
        }
        Record::Ended { id } => remove(transaction, PENDING, &id),
        Record::Attempt(Attempt { slot, attempt }) => {
            let mut table = transaction.open_table(ATTEMPTS).map_err(disk)?;
            let before = table.get(slot.0).map_err(disk)?.map_or(0, |row| row.value());
            table.insert(slot.0, attempt.max(before)).map(drop).map_err(disk)
        }
        Record::Reserved(reserve) => {
            let mut numbers = transaction.open_table(NUMBERS).map_err(disk)?;
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
        Record::Letter { id, letter } => insert(transaction, LETTERS, &id, &encode(&letter)?),
        Record::Posted { id } => remove(transaction, LETTERS, &id),
    }
}

/// Keeps a snapshot, and forgets what it stands for.
fn keep_snapshot(transaction: &WriteTransaction, snapshot: &Snapshot) -> Result<(), Error> {
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
    postcard::to_allocvec(what).map_err(|error| Error::Disk(error.to_string()))
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    postcard::from_bytes(bytes).map_err(|error| Error::Disk(format!("a row cannot be read: {error}")))
}

fn disk(error: impl Into<redb::Error>) -> Error {
    Error::Disk(error.into().to_string())
}

#[cfg(test)]
mod tests;

//! The acceptor's data on disk.
//!
//! The store is one file, and each write is one transaction: after a crash, either all of it is stored or nothing.
//! Keys start with the council, followed by the slot:
//!
//! | table | key | value |
//! |---|---|---|
//! | `acceptor` | `format`, `life` | a number |
//! | `slots` | council, slot, 0 | a promise: a ballot |
//! | `slots` | council, slot, 1 | a vote: a ballot and a value |
//! | `snapshots` | council | a slot and the state after it |
//! | `letters` | council, key, operation | a message |
//!
//! A vote and the promise of the next slot are adjacent, because the acceptor mostly stores them together. Each
//! additional table would add some pages to each commit. The list of councils is derived from the keys.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use holdoff_disk::store::{Form, Numbers, OpenError, Opened};
use holdoff_paxos::Slot;
use holdoff_paxos::slot::{Record, Vote};
use redb::{
    Database, ReadableDatabase, StorageBackend, Table, TableDefinition, TableHandle, WriteTransaction,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{CouncilId, OperationId, PublicKey, Snapshot, Stored, Value};

type Rows = TableDefinition<'static, &'static [u8], &'static [u8]>;

const ACCEPTOR: Numbers = TableDefinition::new("acceptor");
const SLOTS: Rows = TableDefinition::new("slots");
const SNAPSHOTS: Rows = TableDefinition::new("snapshots");
const LETTERS: Rows = TableDefinition::new("letters");

/// The kinds of records of a slot, as the last part of the key.
const PROMISE: u8 = 0;
const VOTE: u8 = 1;

/// The version of the table format. A release reads its own format and earlier ones. The first format was never
/// released.
const FORMAT: u64 = 2;
const FIRST: u64 = 2;
/// An upper bound for the length of the part of a key after the council, which is at most a public key and an
/// operation id.
const LONGEST_KEY: usize = 64;
const FORM: Form =
    Form { numbers: ACCEPTOR, formats: FIRST..=FORMAT, cache_bytes: 64 * 1024 * 1024, make_tables };

/// The store of one acceptor.
///
/// After a failed write the caller must not use the store again, and cannot: the content of the disk is then
/// unknown, and an answer after another attempt could depend on data that is not there. A new process reads the
/// disk and finds out.
#[derive(Debug)]
pub struct Store {
    database: Database,
    life: u64,
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
        "the acceptor's disk has failed: {0}. It answers nobody until it is started again; if the disk is \
         lost, start it on an empty directory and let its councils replace it"
    )]
    Disk(String),
}

impl StoreError {
    fn disk(error: impl Into<redb::Error>) -> Self {
        Self::Disk(error.into().to_string())
    }
}

impl From<OpenError> for StoreError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::InUse => Self::InUse,
            OpenError::Format(found) => Self::Format(found),
            OpenError::Disk(why) => Self::Disk(why),
        }
    }
}

impl Store {
    /// Opens the store in this file, or creates it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::take_up(FORM.open(path)?)
    }

    /// Opens the store on a storage backend. If the backend is empty, the new store gets this incarnation.
    pub fn open_with(backend: impl StorageBackend, life: u64) -> Result<Self, StoreError> {
        Self::take_up(FORM.open_on(backend, life)?)
    }

    fn take_up(Opened { database, life }: Opened) -> Result<Self, StoreError> {
        let councils = read_councils(&database)?;
        Ok(Self { database, life, councils, failed: None })
    }

    /// Returns the incarnation of the store, a number drawn when the store was created. After the loss of the disk,
    /// the new store has another incarnation.
    pub fn life(&self) -> u64 {
        self.life
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
    pub fn write(&mut self, batch: impl IntoIterator<Item = (CouncilId, Stored)>) -> Result<(), StoreError> {
        self.usable()?;
        let mut new = HashSet::new();
        let written = self.transact(batch, &mut new);
        self.councils.extend(new);
        written.inspect_err(|error| self.failed = Some(error.clone()))
    }

    fn transact(
        &self,
        batch: impl IntoIterator<Item = (CouncilId, Stored)>,
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

    /// Loads all records of a council, in an order in which [`Seat::restore`](crate::Seat::restore) accepts them.
    pub fn load(&self, council: CouncilId) -> Result<Vec<Stored>, StoreError> {
        self.usable()?;
        let mut found = Vec::new();
        if !self.knows(&council) {
            return Ok(found);
        }
        self.each(SNAPSHOTS, council, |_, value| {
            found.push(Stored::Snapshot(decode(value)?));
            Ok(())
        })?;
        self.each(SLOTS, council, |key, value| {
            found.push(read_slot(key, value)?);
            Ok(())
        })?;
        self.each(LETTERS, council, |key, value| {
            let (to, id): (PublicKey, OperationId) = decode(key)?;
            found.push(Stored::Letter(to, id, value.to_vec().into()));
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

fn make_tables(writing: &WriteTransaction) -> Result<(), redb::TableError> {
    [SLOTS, SNAPSHOTS, LETTERS].into_iter().try_for_each(|rows| writing.open_table(rows).map(drop))
}

fn read_councils(database: &Database) -> Result<HashSet<CouncilId>, StoreError> {
    let transaction = database.begin_read().map_err(StoreError::disk)?;
    let mut councils = HashSet::new();
    for rows in [SLOTS, SNAPSHOTS, LETTERS] {
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

fn put(tables: &mut Tables<'_>, council: CouncilId, stored: Stored) -> Result<(), StoreError> {
    match stored {
        Stored::Slot(slot, Record::Promised(ballot)) => {
            insert(tables, SLOTS, &slot_key(council, slot, PROMISE), &encode(&ballot)?)
        }
        Stored::Slot(slot, Record::Accepted(vote)) => {
            insert(tables, SLOTS, &slot_key(council, slot, VOTE), &encode(&vote)?)
        }
        Stored::Snapshot(snapshot) => compact(tables, council, &snapshot),
        Stored::Letter(to, id, message) => insert(tables, LETTERS, &letter_key(council, &to, id), &message),
        Stored::Came(who) => forget_letters(tables, council, &who),
    }
}

/// Stores a snapshot and deletes the slots that it covers.
fn compact(tables: &mut Tables<'_>, council: CouncilId, snapshot: &Snapshot) -> Result<(), StoreError> {
    let (first, last) = (slot_key(council, Slot(0), PROMISE), slot_key(council, snapshot.slot, VOTE));
    let table = tables.table(SLOTS)?;
    table.retain_in(first.as_slice()..=last.as_slice(), |_, _| false).map_err(StoreError::disk)?;
    insert(tables, SNAPSHOTS, &council.0, &encode(snapshot)?)
}

fn forget_letters(tables: &mut Tables<'_>, council: CouncilId, to: &PublicKey) -> Result<(), StoreError> {
    let [first, last] = [0, u8::MAX].map(|byte| letter_key(council, to, OperationId([byte; 16])));
    let table = tables.table(LETTERS)?;
    table.retain_in(first.as_slice()..=last.as_slice(), |_, _| false).map_err(StoreError::disk)
}

fn letter_key(council: CouncilId, to: &PublicKey, id: OperationId) -> Vec<u8> {
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

fn read_slot(key: &[u8], value: &[u8]) -> Result<Stored, StoreError> {
    let bad = || StoreError::Disk("a key of a slot cannot be read".to_owned());
    let (kind, slot) = key.split_last().ok_or_else(bad)?;
    let slot = Slot(u64::from_be_bytes(slot.try_into().map_err(|_| bad())?));
    let record = match *kind {
        PROMISE => Record::Promised(decode(value)?),
        VOTE => Record::Accepted(decode::<Vote<Value>>(value)?),
        _ => return Err(bad()),
    };
    Ok(Stored::Slot(slot, record))
}

fn encode(what: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    postcard::to_allocvec(what).map_err(|error| StoreError::Disk(error.to_string()))
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, StoreError> {
    postcard::from_bytes(bytes).map_err(unreadable)
}

#[expect(clippy::needless_pass_by_value, reason = "it is what map_err gives")]
fn unreadable(error: postcard::Error) -> StoreError {
    StoreError::Disk(format!("a row cannot be read: {error}"))
}

#[cfg(test)]
mod tests;

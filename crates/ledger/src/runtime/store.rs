//! What a node has on disk.
//!
//! One file for each ledger, and one transaction for all that is stored at once: it is there as a whole after a crash, or not
//! at all. Every row of the log ends with a sum of its bytes: what has rotted is found when it is read, and not believed.
//!
//! | table | key | value |
//! |---|---|---|
//! | `numbers` | `format`, `life` | a number |
//! | `about` | `ledger`, `founder`; `contacts` | which ledger, and who founded it; whom to ask while that is not known |
//! | `marks` | `promised`, `accepted`, `decided`, `snapshot` | what the log has of it |
//! | `log` | slot | an entry, since the snapshot |

use std::path::Path;

use holdoff_disk::store::{Form, Numbers, OpenError, Opened};
use holdoff_paxos::log::{Mark, Record, Snapshot, Term};
use holdoff_paxos::{Configuration, NodeId, Slot};
use redb::{Database, ReadableDatabase, ReadableTable, Table, TableDefinition, WriteTransaction};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Error;
use super::identity::LedgerId;
use crate::entry::Replicated;
#[cfg(test)]
use crate::entry::Value;
use crate::ledger;
use crate::state::Checkpoint;

const NUMBERS: Numbers = TableDefinition::new("numbers");
const ABOUT: TableDefinition<'static, &'static str, &'static [u8]> = TableDefinition::new("about");
const MARKS: TableDefinition<'static, &'static str, &'static [u8]> = TableDefinition::new("marks");
const LOG: TableDefinition<'static, u64, &'static [u8]> = TableDefinition::new("log");

const PROMISED: &str = "promised";
const ACCEPTED: &str = "accepted";
const DECIDED: &str = "decided";
const SNAPSHOT: &str = "snapshot";

/// The form of the tables. A release reads its own and earlier ones.
const FORMAT: u64 = 2;
const FORM: Form =
    Form { numbers: NUMBERS, formats: FORMAT..=FORMAT, cache_bytes: 32 * 1024 * 1024, make_tables };
/// So many bytes of a hash end a row.
const SUM_BYTES: usize = 8;
const SUM: &str = "holdoff ledger v1: a row on disk";

/// The disk of one node in one ledger. Who has it open keeps everybody else out.
///
/// Whoever was told that writing failed must not use it again, and cannot: what is on disk is not known then.
#[derive(Debug)]
pub(super) struct Store {
    database: Database,
    life: u64,
    /// The last slot that has a row.
    last: Slot,
    failed: Option<String>,
}

/// Which ledger it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct About {
    /// Its id.
    pub ledger: LedgerId,
    /// Who decided alone, before anybody else was there.
    pub founder: NodeId,
}

impl About {
    /// Who decides the first place.
    pub(super) fn voters(&self) -> Result<Configuration, Error> {
        Configuration::new([self.founder]).map_err(|error| Error::Disk(error.to_string()))
    }
}

impl Store {
    /// Opens the store in this file, or makes an empty one.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        Self::take_up(FORM.open(path).map_err(|error| match error {
            OpenError::InUse => Error::InUse(path.to_owned()),
            OpenError::Format(found) => Error::Format { found, known: FORMAT },
            OpenError::Disk(why) => Error::Disk(why),
        })?)
    }

    /// A store that is gone when it is dropped.
    pub(super) fn in_memory() -> Result<Self, Error> {
        Self::take_up(FORM.in_memory().map_err(|error| Error::Disk(error.to_string()))?)
    }

    /// Opens the store on something like a file. If it is empty, this is the life it begins.
    #[cfg(test)]
    pub(super) fn open_with(backend: impl redb::StorageBackend, fresh: u64) -> Result<Self, Error> {
        Self::take_up(FORM.open_on(backend, fresh).map_err(|error| Error::Disk(error.to_string()))?)
    }

    fn take_up(Opened { database, life }: Opened) -> Result<Self, Error> {
        let last = {
            let reading = database.begin_read().map_err(disk)?;
            let log = reading.open_table(LOG).map_err(disk)?;
            log.last().map_err(disk)?.map_or(Slot(0), |(slot, _)| Slot(slot.value()))
        };
        Ok(Self { database, life, last, failed: None })
    }

    /// Which life of the storage this is, drawn when it was made.
    pub(super) fn life(&self) -> u64 {
        self.life
    }

    /// Which ledger this is of; `None` if that is not known yet.
    pub(super) fn about(&self) -> Result<Option<About>, Error> {
        self.read_about("ledger")
    }

    /// Whom to ask which ledger it is.
    pub(super) fn contacts<T: DeserializeOwned>(&self) -> Result<Option<T>, Error> {
        self.read_about("contacts")
    }

    /// Whether it is of a ledger, or meant for one.
    pub(super) fn is_of_something(&self) -> Result<bool, Error> {
        Ok(self.about()?.is_some() || self.contacts::<Vec<super::Contact>>()?.is_some())
    }

    fn read_about<T: DeserializeOwned>(&self, what: &str) -> Result<Option<T>, Error> {
        let reading = self.database.begin_read().map_err(disk)?;
        let table = reading.open_table(ABOUT).map_err(disk)?;
        let row = table.get(what).map_err(disk)?;
        row.map(|row| open(row.value(), what)).transpose()
    }

    /// From now on it is of this ledger.
    pub(super) fn enter(&self, about: &About) -> Result<(), Error> {
        self.write_about("ledger", about)
    }

    /// Remembers whom to ask.
    pub(super) fn remember(&self, contacts: &impl Serialize) -> Result<(), Error> {
        self.write_about("contacts", contacts)
    }

    fn write_about(&self, what: &str, value: &impl Serialize) -> Result<(), Error> {
        let writing = self.database.begin_write().map_err(disk)?;
        writing.open_table(ABOUT).map_err(disk)?.insert(what, seal(value)?.as_slice()).map_err(disk)?;
        writing.commit().map_err(disk)
    }

    /// All that is stored, as the core has it.
    pub(super) fn load<M: Replicated>(&self, about: &About) -> Result<ledger::Store<M>, Error> {
        let mut store = ledger::Store::<M>::new(about.voters()?, Checkpoint::default());
        let reading = self.database.begin_read().map_err(disk)?;
        let marks = reading.open_table(MARKS).map_err(disk)?;
        if let Some(row) = marks.get(SNAPSHOT).map_err(disk)? {
            store.apply(Record::Snapshot(open::<Snapshot<_>>(row.value(), SNAPSHOT)?));
        }
        let log = reading.open_table(LOG).map_err(disk)?;
        for row in log.iter().map_err(disk)? {
            let (slot, entry) = row.map_err(disk)?;
            let slot = Slot(slot.value());
            if slot != store.last().next() {
                return Err(damaged(&format!("the entry at {slot}"), "it follows none"));
            }
            store.apply(Record::Entry { slot, entry: open(entry.value(), "an entry")? });
        }
        if let Some(row) = marks.get(ACCEPTED).map_err(disk)? {
            let term: Term = open(row.value(), ACCEPTED)?;
            store.apply(Record::Accepted { term, last: store.last() });
        }
        if let Some(row) = marks.get(PROMISED).map_err(disk)? {
            store.apply(Record::Promised(open(row.value(), PROMISED)?));
        }
        if let Some(row) = marks.get(DECIDED).map_err(disk)? {
            store.apply(Record::Decided(open(row.value(), DECIDED)?));
        }
        Ok(store)
    }

    /// Stores all of it at once. When this returns it is on disk.
    pub(super) fn write<M: Replicated>(
        &mut self,
        records: impl IntoIterator<Item = ledger::Record<M>>,
    ) -> Result<(), Error> {
        if let Some(why) = &self.failed {
            return Err(Error::Disk(why.clone()));
        }
        let written = self.transact::<M>(records);
        if let Err(error) = &written {
            self.failed = Some(error.to_string());
        }
        written
    }

    fn transact<M: Replicated>(
        &mut self,
        records: impl IntoIterator<Item = ledger::Record<M>>,
    ) -> Result<(), Error> {
        let writing = self.database.begin_write().map_err(disk)?;
        {
            let mut tables = Tables::of(&writing, self.last)?;
            for record in records {
                tables.put(record)?;
            }
            self.last = tables.last;
        }
        writing.commit().map_err(disk)
    }
}

/// The tables of one transaction.
struct Tables<'t> {
    marks: Table<'t, &'static str, &'static [u8]>,
    log: Table<'t, u64, &'static [u8]>,
    last: Slot,
}

impl<'t> Tables<'t> {
    fn of(writing: &'t WriteTransaction, last: Slot) -> Result<Self, Error> {
        let (marks, log) = (writing.open_table(MARKS).map_err(disk)?, writing.open_table(LOG).map_err(disk)?);
        Ok(Self { marks, log, last })
    }

    fn put<V: Serialize + DeserializeOwned, S: Serialize + DeserializeOwned>(
        &mut self,
        record: Record<V, S>,
    ) -> Result<(), Error> {
        match record {
            Record::Promised(promises) => self.mark(PROMISED, &promises),
            Record::Accepted { term, last } => {
                self.cut(last)?;
                self.mark(ACCEPTED, &term)
            }
            Record::Entry { slot, entry } => {
                self.cut(Slot(slot.0.saturating_sub(1)))?;
                self.log.insert(slot.0, seal(&entry)?.as_slice()).map_err(disk)?;
                self.last = slot;
                Ok(())
            }
            Record::Decided(slot) => self.mark(DECIDED, &slot),
            Record::Snapshot(snapshot) => self.rest_on(&snapshot),
        }
    }

    fn mark(&mut self, what: &'static str, value: &impl Serialize) -> Result<(), Error> {
        self.marks.insert(what, seal(value)?.as_slice()).map(drop).map_err(disk)
    }

    /// What comes after a slot is none.
    fn cut(&mut self, last: Slot) -> Result<(), Error> {
        if last < self.last {
            self.log.retain_in(last.next().0.., |_, _| false).map_err(disk)?;
            self.last = self.log.last().map_err(disk)?.map_or(Slot(0), |(slot, _)| Slot(slot.value()));
        }
        Ok(())
    }

    /// The snapshot stands for all up to its last; what comes after it stays if it goes on from the same.
    fn rest_on<S: Serialize + DeserializeOwned>(&mut self, snapshot: &Snapshot<S>) -> Result<(), Error> {
        let through = snapshot.last.slot;
        if self.goes_on(snapshot.last)? {
            self.log.retain_in(..=through.0, |_, _| false).map_err(disk)?;
        } else {
            self.log.retain(|_, _| false).map_err(disk)?;
        }
        self.last = self.log.last().map_err(disk)?.map_or(Slot(0), |(slot, _)| Slot(slot.value()));
        self.mark(SNAPSHOT, snapshot)
    }

    /// Whether what is here stands on this entry.
    fn goes_on(&self, last: Mark) -> Result<bool, Error> {
        if let Some(row) = self.log.get(last.slot.0).map_err(disk)? {
            // An entry begins with its term.
            let (term, _) = postcard::take_from_bytes::<Term>(row.value()).map_err(unreadable)?;
            return Ok(term == last.term);
        }
        let Some(row) = self.marks.get(SNAPSHOT).map_err(disk)? else {
            return Ok(last == Mark { slot: Slot(0), term: Term::none() });
        };
        // A snapshot begins with its last entry.
        let (base, _) = postcard::take_from_bytes::<Mark>(row.value()).map_err(unreadable)?;
        Ok(base == last)
    }
}

fn make_tables(writing: &WriteTransaction) -> Result<(), redb::TableError> {
    writing.open_table(ABOUT)?;
    writing.open_table(MARKS)?;
    writing.open_table(LOG).map(drop)
}

/// A value's bytes, and their sum.
fn seal(value: &impl Serialize) -> Result<Vec<u8>, Error> {
    let mut bytes = postcard::to_stdvec(value).map_err(|error| Error::Disk(error.to_string()))?;
    let sum = sum(&bytes);
    bytes.extend(sum);
    Ok(bytes)
}

/// The value of these bytes, if their sum is right.
fn open<T: DeserializeOwned>(bytes: &[u8], what: &str) -> Result<T, Error> {
    let (bytes, expected) = bytes.split_last_chunk().ok_or_else(|| damaged(what, "it is cut off"))?;
    if sum(bytes) != *expected {
        return Err(damaged(what, "its sum is wrong"));
    }
    postcard::from_bytes(bytes).map_err(|error| damaged(what, &error.to_string()))
}

fn sum(bytes: &[u8]) -> [u8; SUM_BYTES] {
    let mut sum = [0; SUM_BYTES];
    blake3::Hasher::new_derive_key(SUM).update(bytes).finalize_xof().fill(&mut sum);
    sum
}

fn damaged(what: &str, why: &str) -> Error {
    Error::Disk(format!("{what} is damaged: {why}"))
}

#[expect(clippy::needless_pass_by_value, reason = "it is what map_err gives")]
fn unreadable(error: postcard::Error) -> Error {
    Error::Disk(format!("a row cannot be read: {error}"))
}

fn disk(error: impl Into<redb::Error>) -> Error {
    Error::Disk(error.into().to_string())
}

#[cfg(test)]
mod tests;

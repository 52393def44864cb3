//! Stores: databases with a format version and an incarnation.
//!
//! A node that has lost its disk starts with a new incarnation. Its peers can therefore distinguish it from
//! the node whose promises were lost.

use std::ops::RangeInclusive;
use std::path::Path;

use redb::backends::InMemoryBackend;
use redb::{Database, ReadableDatabase, StorageBackend, TableDefinition, TableError, WriteTransaction};

use crate::{database, folder};

/// The table of a store's numbers.
pub type Numbers = TableDefinition<'static, &'static str, u64>;

const FORMAT: &str = "format";
const LIFE: &str = "life";

/// The layout of a kind of store.
#[derive(Clone)]
pub struct Form {
    /// The table of the format version and the incarnation. It may contain other numbers too.
    pub numbers: Numbers,
    /// The readable format versions; the last of them is written.
    pub formats: RangeInclusive<u64>,
    /// The size of the cache in memory.
    pub cache_bytes: usize,
    /// Creates all other tables, so that readers find them.
    pub make_tables: fn(&WriteTransaction) -> Result<(), TableError>,
}

/// An open store. It is open exclusively.
#[derive(Debug)]
pub struct Opened {
    /// The database.
    pub database: Database,
    /// The incarnation of the storage, drawn at its creation.
    pub life: u64,
}

/// The reason why a store could not be opened. Its content is unchanged.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has the store open.
    #[error("another process has it open")]
    InUse,
    /// Another release wrote the store, in this format.
    #[error("its format is {0}, which this release does not read")]
    Format(u64),
    /// The disk failed, or its content is invalid.
    #[error("{0}")]
    Disk(String),
}

impl Form {
    /// Opens the store in this file, or creates an empty one that survives a crash.
    pub fn open(&self, path: &Path) -> Result<Opened, OpenError> {
        let in_file = |error: std::io::Error| OpenError::Disk(format!("{}: {error}", path.display()));
        let fresh = draw_life()?;
        let file = database::file(path).map_err(in_file)?;
        let opened = self.take_up(database::in_file(file, self.cache_bytes).map_err(disk)?, fresh)?;
        folder::sync_parent(path).map_err(in_file)?;
        Ok(opened)
    }

    /// Opens the store on any storage backend. An empty store gets the incarnation `fresh`.
    pub fn open_on(&self, backend: impl StorageBackend, fresh: u64) -> Result<Opened, OpenError> {
        self.take_up(database::on(backend, self.cache_bytes).map_err(disk)?, fresh)
    }

    /// Creates a store in memory, which is lost when it is dropped.
    pub fn in_memory(&self) -> Result<Opened, OpenError> {
        self.open_on(InMemoryBackend::new(), draw_life()?)
    }

    fn take_up(&self, database: Database, fresh: u64) -> Result<Opened, OpenError> {
        let life = match self.read_life(&database)? {
            Some(life) => life,
            None => self.begin(&database, fresh).map_err(disk)?,
        };
        Ok(Opened { database, life })
    }

    fn read_life(&self, database: &Database) -> Result<Option<u64>, OpenError> {
        let reading = database.begin_read().map_err(disk)?;
        let numbers = match reading.open_table(self.numbers) {
            Err(TableError::TableDoesNotExist(_)) => return Ok(None),
            opened => opened.map_err(disk)?,
        };
        let number = |name| {
            let row = numbers.get(name).map_err(disk)?;
            row.map(|row| row.value()).ok_or_else(|| OpenError::Disk(format!("it has no {name}")))
        };
        let format = number(FORMAT)?;
        if self.formats.contains(&format) { number(LIFE).map(Some) } else { Err(OpenError::Format(format)) }
    }

    fn begin(&self, database: &Database, life: u64) -> Result<u64, redb::Error> {
        let writing = database.begin_write()?;
        {
            let mut numbers = writing.open_table(self.numbers)?;
            numbers.insert(FORMAT, self.formats.end())?;
            numbers.insert(LIFE, life)?;
        }
        (self.make_tables)(&writing)?;
        writing.commit()?;
        Ok(life)
    }
}

fn draw_life() -> Result<u64, OpenError> {
    getrandom::u64().map_err(|error| OpenError::Disk(error.to_string()))
}

fn disk(error: impl Into<redb::Error>) -> OpenError {
    match error.into() {
        redb::Error::DatabaseAlreadyOpen => OpenError::InUse,
        error => OpenError::Disk(error.to_string()),
    }
}

#[cfg(test)]
#[cfg(feature = "forgetful")]
mod tests;

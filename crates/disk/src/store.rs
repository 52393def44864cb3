//! Stores: databases that know their form, and which life of the storage they are.
//!
//! Whoever has lost its disk begins another life: by that it is told apart from the one that had promised something.

use std::ops::RangeInclusive;
use std::path::Path;

use redb::backends::InMemoryBackend;
use redb::{Database, ReadableDatabase, StorageBackend, TableDefinition, TableError, WriteTransaction};

use crate::{database, folder};

/// The table that a store has its numbers in.
pub type Numbers = TableDefinition<'static, &'static str, u64>;

const FORMAT: &str = "format";
const LIFE: &str = "life";

/// What a kind of store looks like.
#[derive(Clone)]
pub struct Form {
    /// Where its format and its life are. Other numbers may be there, too.
    pub numbers: Numbers,
    /// The formats that can be read, up to the one that is written.
    pub formats: RangeInclusive<u64>,
    /// As much as is kept in memory of the file.
    pub cache_bytes: usize,
    /// Makes all other tables, so that reading finds them.
    pub make_tables: fn(&WriteTransaction) -> Result<(), TableError>,
}

/// A store that is open. Who has it open keeps everybody else out.
#[derive(Debug)]
pub struct Opened {
    /// What is in it.
    pub database: Database,
    /// Which life of the storage this is, drawn when it was made.
    pub life: u64,
}

/// Why a store could not be opened. Nothing that was in it has changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// Somebody else has it open.
    #[error("another process has it open")]
    InUse,
    /// Another release wrote it, in this format.
    #[error("its format is {0}, which this release does not read")]
    Format(u64),
    /// The disk has failed, or what is on it makes no sense.
    #[error("{0}")]
    Disk(String),
}

impl Form {
    /// Opens the store in this file, or makes an empty one, which is there after a crash.
    pub fn open(&self, path: &Path) -> Result<Opened, OpenError> {
        let in_file = |error: std::io::Error| OpenError::Disk(format!("{}: {error}", path.display()));
        let fresh = draw_life()?;
        let file = database::file(path).map_err(in_file)?;
        let opened = self.take_up(database::in_file(file, self.cache_bytes).map_err(disk)?, fresh)?;
        folder::sync_parent(path).map_err(in_file)?;
        Ok(opened)
    }

    /// Opens the store on something like a file. If it is empty, this is the life it begins.
    pub fn open_on(&self, backend: impl StorageBackend, fresh: u64) -> Result<Opened, OpenError> {
        self.take_up(database::on(backend, self.cache_bytes).map_err(disk)?, fresh)
    }

    /// A store that is gone when it is dropped.
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

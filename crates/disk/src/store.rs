//! Stores: databases with a format version and an incarnation.
//!
//! A node that has lost its disk starts with a new incarnation. Its peers can therefore distinguish it from
//! the node whose promises were lost. A store can be opened again after a crash at any moment of its creation.

use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::path::Path;

use redb::backends::{FileBackend, InMemoryBackend};
use redb::{
    Database, DatabaseError, ReadableDatabase, StorageBackend, TableDefinition, TableError, WriteTransaction,
};

use crate::{DiskError, directory};

/// The table of a store's metadata.
pub type MetadataTable = TableDefinition<'static, &'static str, u64>;

/// The keys of the metadata table.
const FORMAT: &str = "format";
const INCARNATION: &str = "incarnation";

/// The length of the magic number that redb writes at the start of a file after all other content.
const MAGIC_BYTES: usize = 9;

/// The layout of a kind of store.
#[derive(Clone)]
pub struct StoreSchema {
    /// The table of the format version and the incarnation. It may contain other metadata too.
    pub metadata: MetadataTable,
    /// The readable format versions; the last of them is written.
    pub formats: RangeInclusive<u64>,
    /// The size of the cache in memory.
    pub cache_bytes: usize,
    /// Creates all other tables, so that readers find them.
    pub create_tables: fn(&WriteTransaction) -> Result<(), TableError>,
}

/// An open store. It is open exclusively.
#[derive(Debug)]
pub struct OpenStore {
    /// The database.
    pub database: Database,
    /// The incarnation of the storage, drawn at its creation.
    pub incarnation: u64,
}

/// The reason why a store could not be opened. Its content is unchanged.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has the store open.
    #[error("another process has it open: stop that process first")]
    InUse,
    /// Another release wrote the store, in this format.
    #[error("its format {0} is not readable by this release: use the release that wrote it")]
    Format(u64),
    /// The file has tables, and no metadata of this kind of store.
    #[error(
        "it has tables but no format version: another release or program wrote it; use that release, or another file"
    )]
    NoMetadata,
    /// The disk failed, or its content is invalid.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

impl StoreSchema {
    /// Opens the store in this file, or creates an empty one that survives a crash.
    pub fn open(&self, path: &Path) -> Result<OpenStore, OpenError> {
        let in_file = |error: std::io::Error| OpenError::Disk(DiskError::at(path, error));
        let fresh = draw_incarnation()?;
        let file = open_file(path).map_err(in_file)?;
        let opened = self.open_database(database_in_file(file, self.cache_bytes).map_err(disk)?, fresh)?;
        directory::sync_parent(path).map_err(in_file)?;
        Ok(opened)
    }

    /// Opens the store on any storage backend. An empty store gets the incarnation `fresh`.
    pub fn open_on(&self, backend: impl StorageBackend, fresh: u64) -> Result<OpenStore, OpenError> {
        self.open_database(database_on(backend, self.cache_bytes).map_err(disk)?, fresh)
    }

    /// Creates a store in memory, which is lost when it is dropped.
    pub fn in_memory(&self) -> Result<OpenStore, OpenError> {
        self.open_on(InMemoryBackend::new(), draw_incarnation()?)
    }

    fn open_database(&self, database: Database, fresh: u64) -> Result<OpenStore, OpenError> {
        let incarnation = match self.read_incarnation(&database)? {
            Some(incarnation) => incarnation,
            None => self.initialize(&database, fresh).map_err(disk)?,
        };
        Ok(OpenStore { database, incarnation })
    }

    fn read_incarnation(&self, database: &Database) -> Result<Option<u64>, OpenError> {
        let reading = database.begin_read().map_err(disk)?;
        let metadata = match reading.open_table(self.metadata) {
            // A store is created in one transaction: tables without metadata are those of another release.
            Err(TableError::TableDoesNotExist(_))
                if reading.list_tables().map_err(disk)?.next().is_none() =>
            {
                return Ok(None);
            }
            Err(TableError::TableDoesNotExist(_)) => return Err(OpenError::NoMetadata),
            opened => opened.map_err(disk)?,
        };
        let number = |name| {
            let row = metadata.get(name).map_err(disk)?;
            row.map(|row| row.value()).ok_or_else(|| {
                OpenError::Disk(DiskError::new(format!(
                    "its metadata has no {name}: another release wrote it"
                )))
            })
        };
        let format = number(FORMAT)?;
        if self.formats.contains(&format) {
            number(INCARNATION).map(Some)
        } else {
            Err(OpenError::Format(format))
        }
    }

    fn initialize(&self, database: &Database, incarnation: u64) -> Result<u64, redb::Error> {
        let writing = database.begin_write()?;
        {
            let mut metadata = writing.open_table(self.metadata)?;
            metadata.insert(FORMAT, self.formats.end())?;
            metadata.insert(INCARNATION, incarnation)?;
        }
        (self.create_tables)(&writing)?;
        writing.commit()?;
        Ok(incarnation)
    }
}

fn draw_incarnation() -> Result<u64, OpenError> {
    getrandom::u64().map_err(|error| OpenError::Disk(DiskError::new(error)))
}

fn disk(error: impl Into<redb::Error>) -> OpenError {
    match error.into() {
        redb::Error::DatabaseAlreadyOpen => OpenError::InUse,
        error => OpenError::Disk(DiskError::new(error)),
    }
}

/// Opens the file at this path, and creates it if necessary. Only its owner can read it.
fn open_file(path: &Path) -> io::Result<File> {
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Opens the database in a file, exclusively.
fn database_in_file(file: File, cache_bytes: usize) -> Result<Database, DatabaseError> {
    database_on(FileBackend::new(file)?, cache_bytes)
}

/// Opens or creates the database on any storage backend.
fn database_on(backend: impl StorageBackend, cache_bytes: usize) -> Result<Database, DatabaseError> {
    if is_unfinished(&backend)? {
        backend.set_len(0)?;
    }
    Database::builder().set_cache_size(cache_bytes).create_with_backend(backend)
}

/// Returns whether the creation of the file was interrupted. Such a file contains no data yet.
fn is_unfinished(backend: &impl StorageBackend) -> io::Result<bool> {
    let length = usize::try_from(backend.len()?).unwrap_or(usize::MAX);
    let mut magic = [0; MAGIC_BYTES];
    let head = magic.get_mut(..length.min(MAGIC_BYTES)).unwrap_or_default();
    backend.read(0, head)?;
    Ok(length > 0 && magic == [0; MAGIC_BYTES])
}

#[cfg(test)]
#[cfg(feature = "faulty")]
mod tests {
    use redb::ReadableTable;

    use super::*;
    use crate::faulty::FaultyDisk;

    const NUMBERS: MetadataTable = TableDefinition::new("numbers");
    const ROWS: TableDefinition<'static, u64, u64> = TableDefinition::new("rows");

    fn schema(formats: RangeInclusive<u64>) -> StoreSchema {
        let create_tables = |writing: &WriteTransaction| writing.open_table(ROWS).map(drop);
        StoreSchema { metadata: NUMBERS, formats, cache_bytes: 1 << 20, create_tables }
    }

    fn rows(opened: &OpenStore) -> usize {
        opened.database.begin_read().unwrap().open_table(ROWS).unwrap().iter().unwrap().count()
    }

    #[test]
    fn a_file_has_one_incarnation_and_one_owner() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.redb");
        let first = schema(1..=1).open(&path).unwrap();
        assert_eq!(rows(&first), 0, "its tables are there from the beginning");
        assert_eq!(schema(1..=1).open(&path).unwrap_err(), OpenError::InUse);
        let incarnation = first.incarnation;
        drop(first);
        assert_eq!(schema(1..=1).open(&path).unwrap().incarnation, incarnation);
        let another = schema(1..=1).open(&directory.path().join("another.redb")).unwrap();
        assert_ne!(another.incarnation, incarnation);
    }

    #[test]
    fn a_foreign_file_is_rejected_and_unchanged() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.redb");
        let text = b"dear diary".repeat(1000);
        std::fs::write(&path, &text).unwrap();
        assert!(matches!(schema(1..=1).open(&path), Err(OpenError::Disk(_))));
        assert_eq!(std::fs::read(&path).unwrap(), text);
    }

    #[test]
    fn an_error_names_the_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nowhere/store.redb");
        let why = schema(1..=1).open(&path).unwrap_err().to_string();
        assert!(why.starts_with(&path.display().to_string()), "{why}");
    }

    #[test]
    fn earlier_formats_are_readable_and_others_are_rejected() {
        let disk = FaultyDisk::default();
        drop(schema(2..=2).open_on(disk.handle(), 7).unwrap());
        for (formats, found) in
            [(1..=1, Err(OpenError::Format(2))), (1..=3, Ok(7)), (3..=4, Err(OpenError::Format(2)))]
        {
            assert_eq!(schema(formats).open_on(disk.handle(), 8).map(|opened| opened.incarnation), found);
        }
        assert_eq!(schema(2..=2).open_on(disk.handle(), 9).unwrap().incarnation, 7);
    }

    #[test]
    fn a_file_with_tables_of_another_release_is_rejected_and_unchanged() {
        let disk = FaultyDisk::default();
        drop(schema(1..=1).open_on(disk.handle(), 1).unwrap());
        let renamed = StoreSchema { metadata: TableDefinition::new("metadata"), ..schema(1..=1) };
        assert_eq!(
            renamed.open_on(disk.handle(), 2).map(|opened| opened.incarnation),
            Err(OpenError::NoMetadata)
        );
        assert_eq!(schema(1..=1).open_on(disk.handle(), 3).unwrap().incarnation, 1);
    }

    #[test]
    fn missing_metadata_is_an_error() {
        let disk = FaultyDisk::default();
        let opened = schema(1..=1).open_on(disk.handle(), 1).unwrap();
        let writing = opened.database.begin_write().unwrap();
        writing.open_table(NUMBERS).unwrap().remove(INCARNATION).unwrap();
        writing.commit().unwrap();
        drop(opened);
        let why = schema(1..=1).open_on(disk.handle(), 2).unwrap_err();
        assert_eq!(
            why,
            OpenError::Disk(DiskError::new("its metadata has no incarnation: another release wrote it"))
        );
    }

    #[test]
    fn a_store_opens_after_a_power_failure_at_any_step_of_its_creation() {
        let mut cuts = 0;
        for steps in 1.. {
            // None, all and some of the unsynced writes survive.
            for roll in 0..8 {
                let disk = FaultyDisk::default();
                disk.lose_power_after(steps);
                if schema(1..=1).open_on(disk.handle(), 1).is_ok() {
                    assert!(cuts > 10, "{cuts}");
                    return;
                }
                let mut rolls = roll..;
                disk.crash(|| rolls.next().unwrap_or(0));
                let again = schema(1..=1).open_on(disk.handle(), 2).unwrap();
                assert!(
                    (1..=2).contains(&again.incarnation) && rows(&again) == 0,
                    "cut after {steps}, roll {roll}"
                );
                cuts += 1;
            }
        }
    }
}

//! Stores: databases with a format version and an incarnation.
//!
//! A node that has lost its disk starts with a new incarnation. Its peers can therefore distinguish it from
//! the node whose promises were lost. A store can be opened again after a crash at any moment of its creation.

use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use redb::backends::{FileBackend, InMemoryBackend};
use redb::{
    Database, DatabaseError, ReadableDatabase, StorageBackend, TableDefinition, TableError, WriteTransaction,
};

use crate::sync_mark::{self, MarkedFile};
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
    /// A sync of the store failed: what it contains may never have reached the disk. The path is that of the mark.
    #[error(
        "a sync of it has failed, and what it contains may never have reached the disk: check the disk, remove the store and {}, and \
         let the node join its peers again with an empty store (\"A sync has failed\" in docs/operate.md)",
        .0.display()
    )]
    SyncFailed(PathBuf),
    /// The disk failed, or its content is invalid.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

impl StoreSchema {
    /// Opens the store in this file, or creates an empty one that survives a crash.
    pub fn open(&self, path: &Path) -> Result<OpenStore, OpenError> {
        let in_file = |error: std::io::Error| OpenError::Disk(DiskError::at(path, error));
        let fresh = draw_incarnation()?;
        check_mark(path)?;
        let file = open_file(path).map_err(in_file)?;
        let opened =
            self.open_database(database_in_file(file, path, self.cache_bytes).map_err(disk)?, fresh)?;
        directory::sync_parent(path).map_err(in_file)?;
        // Another process may have left the mark before this one became the owner of the store.
        check_mark(path)?;
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

fn check_mark(path: &Path) -> Result<(), OpenError> {
    let mark = sync_mark::path_of(path);
    match mark.try_exists() {
        Ok(false) => Ok(()),
        Ok(true) => Err(OpenError::SyncFailed(mark)),
        Err(error) => Err(OpenError::Disk(DiskError::at(&mark, error))),
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
fn database_in_file(file: File, path: &Path, cache_bytes: usize) -> Result<Database, DatabaseError> {
    database_on(MarkedFile::new(FileBackend::new(file)?, path), cache_bytes)
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

    fn put(opened: &OpenStore, row: u64) -> Result<(), redb::Error> {
        let writing = opened.database.begin_write()?;
        writing.open_table(ROWS)?.insert(row, row)?;
        writing.commit()?;
        Ok(())
    }

    /// The kernel shows the row, and the disk does not have it.
    #[test]
    fn a_store_opened_again_after_a_failed_sync_would_show_what_a_power_failure_takes_back() {
        let disk = FaultyDisk::default();
        let opened = schema(1..=1).open_on(disk.handle(), 1).unwrap();
        put(&opened, 1).unwrap();
        disk.fail_syncs(1);
        assert!(put(&opened, 2).is_err());
        drop(opened);
        let opened = schema(1..=1).open_on(disk.handle(), 1).unwrap();
        assert_eq!(rows(&opened), 2, "it shows the row of the failed transaction");
        drop(opened);
        disk.crash(|| 0);
        // The second process has synced a header that refers to pages that were never written.
        let open = || schema(1..=1).open_on(disk.handle(), 1).map(|opened| rows(&opened));
        let after = std::panic::catch_unwind(std::panic::AssertUnwindSafe(open));
        assert!(!matches!(after, Ok(Ok(2))), "the row is gone, or the store is damaged");
    }

    #[test]
    fn a_store_is_not_opened_again_after_a_failed_sync() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.redb");
        std::fs::write(&path, "the store").unwrap();
        let disk = FaultyDisk::default();
        let opened = schema(1..=1).open_on(MarkedFile::new(disk.handle(), &path), 1).unwrap();
        put(&opened, 1).unwrap();
        assert!(!sync_mark::path_of(&path).exists());
        disk.fail_syncs(1);
        assert!(put(&opened, 2).unwrap_err().to_string().contains("does not sync any more"));
        let refused = schema(1..=1).open(&path).unwrap_err();
        assert!(matches!(&refused, OpenError::SyncFailed(mark) if *mark == sync_mark::path_of(&path)));
        assert!(refused.to_string().contains("store.redb.sync-failed"), "{refused}");
        assert_eq!(std::fs::read(&path).unwrap(), b"the store", "its content is unchanged");
        // Without the mark and the store, a new store with another incarnation begins.
        std::fs::remove_file(sync_mark::path_of(&path)).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(schema(1..=1).open(&path).map(|opened| rows(&opened)), Ok(0));
    }

    /// A process whose `fdatasync` fails: a library that the loader puts before the C library.
    #[test]
    #[cfg(target_os = "linux")]
    fn the_next_process_refuses_a_store_whose_fdatasync_failed() {
        const STORE: &str = "HOLDOFF_TEST_STORE";
        const SHIM: &str = "#include <errno.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
            int fdatasync(int fd) {\n\
              if (access(getenv(\"HOLDOFF_TEST_FAIL\"), F_OK) == 0) { errno = EIO; return -1; }\n\
              return fsync(fd);\n}\n";
        if let Some(path) = std::env::var_os(STORE) {
            let opened = schema(1..=1).open(Path::new(&path)).unwrap();
            put(&opened, 1).unwrap();
            std::fs::write(std::env::var_os("HOLDOFF_TEST_FAIL").unwrap(), "").unwrap();
            let why = put(&opened, 2).unwrap_err();
            assert!(why.to_string().contains("Input/output error"), "{why}");
            // The process dies at once.
            std::process::exit(7);
        }
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("shim.c"), SHIM).unwrap();
        let built = std::process::Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .args([at("shim.so"), at("shim.c")])
            .status();
        assert!(built.unwrap().success());
        let name = std::thread::current().name().unwrap().to_owned();
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &name, "--nocapture"])
            .env(STORE, at("store.redb"))
            .env("HOLDOFF_TEST_FAIL", at("fail"))
            .env("LD_PRELOAD", at("shim.so"))
            .output()
            .unwrap();
        assert_eq!(child.status.code(), Some(7), "{}", String::from_utf8_lossy(&child.stderr));
        let refused = schema(1..=1).open(&at("store.redb")).unwrap_err();
        assert!(matches!(refused, OpenError::SyncFailed(_)), "{refused}");
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

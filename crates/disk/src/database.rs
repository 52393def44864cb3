//! Database files that can be opened again after a crash at any moment of their creation.

use std::fs::File;
use std::io;
use std::path::Path;

use redb::backends::FileBackend;
use redb::{Database, DatabaseError, StorageBackend};

/// The length of the magic number that redb writes at the start of a file after all other content.
const MARK_BYTES: usize = 9;

/// Opens the file at this path, and creates it if necessary. Only its owner can read it.
pub fn file(path: &Path) -> io::Result<File> {
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Opens the database in a file, exclusively.
pub fn in_file(file: File, cache_bytes: usize) -> Result<Database, DatabaseError> {
    on(FileBackend::new(file)?, cache_bytes)
}

/// Opens or creates the database on any storage backend.
pub fn on(backend: impl StorageBackend, cache_bytes: usize) -> Result<Database, DatabaseError> {
    if is_unfinished(&backend)? {
        backend.set_len(0)?;
    }
    Database::builder().set_cache_size(cache_bytes).create_with_backend(backend)
}

/// Returns whether the creation of the file was interrupted. Such a file contains no data yet.
fn is_unfinished(backend: &impl StorageBackend) -> io::Result<bool> {
    let length = usize::try_from(backend.len()?).unwrap_or(usize::MAX);
    let mut mark = [0; MARK_BYTES];
    let there = mark.get_mut(..length.min(MARK_BYTES)).unwrap_or_default();
    backend.read(0, there)?;
    Ok(length > 0 && mark == [0; MARK_BYTES])
}

//! Files that can be opened again, whatever moment their maker was killed at.

use std::fs::File;
use std::io;
use std::path::Path;

use redb::backends::FileBackend;
use redb::{Database, DatabaseError, StorageBackend};

/// What redb writes in front of a file when everything else in it is there.
const MARK_BYTES: usize = 9;

/// The file at this path, made if it is not there. Only its owner may read it.
pub fn file(path: &Path) -> io::Result<File> {
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Opens the database in a file, which nobody else has open then.
pub fn in_file(file: File, cache_bytes: usize) -> Result<Database, DatabaseError> {
    on(FileBackend::new(file)?, cache_bytes)
}

/// Opens the database on something like a file, or makes it there.
pub fn on(backend: impl StorageBackend, cache_bytes: usize) -> Result<Database, DatabaseError> {
    if is_unfinished(&backend)? {
        backend.set_len(0)?;
    }
    Database::builder().set_cache_size(cache_bytes).create_with_backend(backend)
}

/// Whether whoever made the file did not come to its end: then nobody has had anything in it yet.
fn is_unfinished(backend: &impl StorageBackend) -> io::Result<bool> {
    let length = usize::try_from(backend.len()?).unwrap_or(usize::MAX);
    let mut mark = [0; MARK_BYTES];
    let there = mark.get_mut(..length.min(MARK_BYTES)).unwrap_or_default();
    backend.read(0, there)?;
    Ok(length > 0 && mark == [0; MARK_BYTES])
}

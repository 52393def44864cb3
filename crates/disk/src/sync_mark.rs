//! A mark beside a store whose sync has failed.
//!
//! After a failed fsync the kernel takes the pages for clean: it still returns them to readers, and never writes them. A
//! process that opened the store again would read promises that the next power failure takes back, and no later sync would
//! fail. So the store leaves a mark before the process learns of the failure, and no process opens a store with a mark. The
//! mark need not outlive a power failure, which also empties the cache, but it does if the disk still works.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Bound;
use std::path::{Path, PathBuf};

use redb::{BackendError, StorageBackend};

use crate::directory;

/// Returns the path of a store's mark.
pub(crate) fn path_of(store: &Path) -> PathBuf {
    let mut path = store.as_os_str().to_owned();
    path.push(OsStr::new(".sync-failed"));
    path.into()
}

/// A store's file, which leaves the mark when a sync fails.
#[derive(Debug)]
pub(crate) struct MarkedFile<B> {
    inner: B,
    store: PathBuf,
}

impl<B> MarkedFile<B> {
    pub(crate) fn new(inner: B, store: &Path) -> Self {
        Self { inner, store: store.to_owned() }
    }

    /// Leaves the mark. If no file can be created, the store itself becomes the mark: a rename needs no space.
    fn leave_mark(&self, why: &io::Error) -> io::Result<()> {
        let mark = path_of(&self.store);
        let created = File::create(&mark).map(|mut file| {
            // The mark exists; its text and its sync may fail.
            let text = writeln!(file, "a sync of {} failed: {why}", self.store.display());
            drop(text.and_then(|()| file.sync_all()).and_then(|()| directory::sync_parent(&mark)));
        });
        created.or_else(|_| std::fs::rename(&self.store, &mark))
    }
}

impl<B: StorageBackend> StorageBackend for MarkedFile<B> {
    fn sync_data(&self) -> io::Result<()> {
        self.inner.sync_data().map_err(|error| match self.leave_mark(&error) {
            Ok(()) => error,
            Err(why) => io::Error::other(format!(
                "{error}, and no mark could be left beside the store ({why}): remove {} before a process opens it again",
                self.store.display()
            )),
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.inner.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.inner.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.query_lock_range(start, end)
    }
}

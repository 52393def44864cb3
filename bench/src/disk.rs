//! The latency of the disk alone.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use redb::{Database, TableDefinition};

use crate::times::timed;

const ROWS: TableDefinition<'static, u64, &'static [u8]> = TableDefinition::new("rows");
/// The approximate size of a stored vote.
const ROW: [u8; 400] = [7; 400];

/// A file and a store without any other layer.
pub(crate) struct Disk {
    file: File,
    database: Database,
    next: u64,
}

impl Disk {
    pub(crate) fn new(folder: &Path) -> Result<Self, String> {
        let file = File::create(folder.join("bare")).map_err(|error| error.to_string())?;
        let database = Database::create(folder.join("bare.redb")).map_err(|error| error.to_string())?;
        Ok(Self { file, database, next: 0 })
    }

    /// Overwrites a page and syncs it.
    pub(crate) fn sync(&self) -> Result<Duration, String> {
        timed(|| self.file.write_all_at(&[7; 4096], 0).and_then(|()| self.file.sync_data()))
    }

    /// Inserts a row into the store and commits it durably.
    pub(crate) fn store(&mut self) -> Result<Duration, String> {
        self.next += 1;
        timed(|| -> Result<(), redb::Error> {
            let transaction = self.database.begin_write()?;
            transaction.open_table(ROWS)?.insert(self.next, ROW.as_slice())?;
            Ok(transaction.commit()?)
        })
    }
}

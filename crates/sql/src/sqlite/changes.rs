//! Detects writes to the file by any connection, including those of other processes.

use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{Sqlite, SqlitePool};

/// The polling interval. A check reads one number from memory.
pub const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Detects changes of the file.
#[derive(Debug)]
pub struct Changes {
    readers: SqlitePool,
    /// The connection and its data version, which changes when any other connection has written.
    seen: Option<(PoolConnection<Sqlite>, i64)>,
}

impl Changes {
    /// Creates a detector for the file that these connections read.
    pub const fn new(readers: SqlitePool) -> Self {
        Self { readers, seen: None }
    }

    /// Returns whether any connection has written since the last check. Returns `true` for the first check,
    /// and whenever the answer is unknown.
    pub async fn look(&mut self) -> bool {
        self.try_look().await.unwrap_or_else(|error| {
            tracing::debug!(%error, "cannot see whether the file has changed");
            self.rest();
            true
        })
    }

    /// Releases the connection. The next check counts as the first again.
    pub fn rest(&mut self) {
        self.seen = None;
    }

    async fn try_look(&mut self) -> Result<bool, sqlx::Error> {
        let (connection, last) = match &mut self.seen {
            Some((connection, last)) => (connection, last),
            none => {
                let (connection, last) = none.insert((self.readers.acquire().await?, 0));
                (connection, last)
            }
        };
        let version = sqlx::query_scalar("pragma data_version").fetch_one(&mut **connection).await?;
        Ok(std::mem::replace(last, version) != version)
    }
}

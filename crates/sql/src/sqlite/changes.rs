//! Knowing that somebody has written the file, also another process.

use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{Sqlite, SqlitePool};

/// How often to look. Looking reads one number from memory.
pub const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Sees whether the file has changed.
#[derive(Debug)]
pub struct Changes {
    readers: SqlitePool,
    /// The number belongs to the connection: it changes when any other one has written.
    seen: Option<(PoolConnection<Sqlite>, i64)>,
}

impl Changes {
    /// Of the file these connections read.
    pub const fn new(readers: SqlitePool) -> Self {
        Self { readers, seen: None }
    }

    /// Whether anybody has written since the last look; yes for the first one, and whenever it cannot be known.
    pub async fn look(&mut self) -> bool {
        self.try_look().await.unwrap_or_else(|error| {
            tracing::debug!(%error, "cannot see whether the file has changed");
            self.rest();
            true
        })
    }

    /// Keeps no connection until the next look, which is a first one again.
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

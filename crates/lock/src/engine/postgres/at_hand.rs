//! A cache of connections.
//!
//! A pool tests a connection when it is acquired and again when it is returned: three round trips instead of one, which
//! is most of the cost of an uncontended lock, apart from the disk.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{Connection as _, PgConnection, PgPool, Postgres};
use tokio::time::Instant;

/// The maximum number of connections kept from the pool.
const MOST: usize = 4;

/// A connection that answered within this time is used without a test. An older one is tested first.
const TRUSTED_FOR: Duration = Duration::from_secs(1);

/// The connections that answered last, with the times of their last answers.
#[derive(Debug)]
pub(super) struct AtHand {
    pool: PgPool,
    idle: Mutex<Vec<(PoolConnection<Postgres>, Instant)>>,
}

/// An acquired connection. Unless it is given back, it returns to the pool, which tests whether it is usable.
pub(super) struct Taken<'a> {
    connection: PoolConnection<Postgres>,
    from: &'a AtHand,
}

impl AtHand {
    pub(super) fn new(pool: PgPool) -> Self {
        Self { pool, idle: Mutex::new(Vec::new()) }
    }

    pub(super) async fn take(&self) -> Result<Taken<'_>, sqlx::Error> {
        let last = self.idle().pop();
        if let Some((mut connection, answered)) = last
            && (answered.elapsed() < TRUSTED_FOR || connection.ping().await.is_ok())
        {
            return Ok(Taken { connection, from: self });
        }
        Ok(Taken { connection: self.pool.acquire().await?, from: self })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(PoolConnection<Postgres>, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AtHand {
    fn drop(&mut self) {
        // A pool takes connections back in a task. Without a runtime no task can run, and the connections ended with
        // the runtime in which they were opened.
        if tokio::runtime::Handle::try_current().is_err() {
            self.idle().drain(..).for_each(std::mem::forget);
        }
    }
}

impl Taken<'_> {
    /// Returns a connection that has answered to the cache.
    pub(super) fn give_back(self) {
        let mut idle = self.from.idle();
        if idle.len() < MOST {
            idle.push((self.connection, Instant::now()));
        }
    }
}

impl Deref for Taken<'_> {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.connection
    }
}

impl DerefMut for Taken<'_> {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.connection
    }
}

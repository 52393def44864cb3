//! A cache of connections.
//!
//! A pool tests a connection when it is acquired and again when it is returned: three round trips instead of one, which
//! is most of the cost of an uncontended lock, apart from the disk.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use holdoff_sql::postgres::{Pool, Session, Transaction};
use parking_lot::Mutex;
use tokio::time::Instant;

/// The maximum number of connections kept from the pool.
const MAX_IDLE: usize = 4;

/// A connection that answered within this time is used without a test. An older one is tested first.
const FRESH_FOR: Duration = Duration::from_secs(1);

/// The connections that answered last, with the times of their last answers.
#[derive(Debug)]
pub(super) struct ConnectionCache {
    pool: Pool,
    idle: Mutex<Vec<(Transaction, Instant)>>,
}

/// An acquired connection. Unless it is put back, it returns to the pool, which tests whether it is usable.
pub(super) struct CachedConnection<'a> {
    connection: Transaction,
    from: &'a ConnectionCache,
}

impl ConnectionCache {
    pub(super) fn new(pool: Pool) -> Self {
        Self { pool, idle: Mutex::new(Vec::new()) }
    }

    pub(super) async fn take(&self) -> Result<CachedConnection<'_>, sqlx::Error> {
        let last = self.idle.lock().pop();
        if let Some((mut connection, answered)) = last
            && (answered.elapsed() < FRESH_FOR || connection.ping().await.is_ok())
        {
            return Ok(CachedConnection { connection, from: self });
        }
        Ok(CachedConnection { connection: self.pool.acquire().await?, from: self })
    }
}

impl Drop for ConnectionCache {
    fn drop(&mut self) {
        // A pool takes connections back in a task. Without a runtime no task can run, and the connections ended with
        // the runtime in which they were opened.
        if tokio::runtime::Handle::try_current().is_err() {
            self.idle.lock().drain(..).for_each(std::mem::forget);
        }
    }
}

impl CachedConnection<'_> {
    /// Returns a connection that has answered to the cache. Through a pooler it ends the transaction instead: an idle
    /// transaction would keep a connection of the server.
    pub(super) async fn put_back(self) -> Result<(), sqlx::Error> {
        if self.from.pool.is_pooled() {
            return self.connection.commit().await;
        }
        let mut idle = self.from.idle.lock();
        if idle.len() < MAX_IDLE {
            idle.push((self.connection, Instant::now()));
        }
        Ok(())
    }
}

impl Deref for CachedConnection<'_> {
    type Target = Session<'static>;

    fn deref(&self) -> &Session<'static> {
        &self.connection
    }
}

impl DerefMut for CachedConnection<'_> {
    fn deref_mut(&mut self) -> &mut Session<'static> {
        &mut self.connection
    }
}

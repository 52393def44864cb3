//! Connections that are at hand.
//!
//! A pool asks a connection whether it lives when it is taken and again when it is given back: three round trips instead
//! of one, which is most of what an uncontended lock costs apart from the disk.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{Connection as _, PgConnection, PgPool, Postgres};
use tokio::time::Instant;

/// How many are kept from the pool.
const MOST: usize = 4;

/// One that answered so recently is trusted; one that did not is asked first whether it lives.
const TRUSTED_FOR: Duration = Duration::from_secs(1);

/// Those that answered last, and when.
#[derive(Debug)]
pub(super) struct AtHand {
    pool: PgPool,
    idle: Mutex<Vec<(PoolConnection<Postgres>, Instant)>>,
}

/// One that was taken. Unless it is given back, the pool gets it, and sees whether it can be used again.
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
        // A pool takes connections back by a task. Where there is no runtime any more, there is nobody to run it, and the
        // connections are dead with the runtime they were made in.
        if tokio::runtime::Handle::try_current().is_err() {
            self.idle().drain(..).for_each(std::mem::forget);
        }
    }
}

impl Taken<'_> {
    /// It has answered.
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

//! Locks in a SQLite file, shared by any number of processes on one machine.
//!
//! Grants and renewals are on the disk before the response. If a power cut lost a grant, the store would grant the lock
//! again, to another client, with the same token. A lost release delays the next holder until the lease expires, and a
//! lost waiter asks again; neither waits for the disk.
//!
//! Leases are measured by the time since the machine was booted: see `file.rs`. Tokens start from the wall clock, so that
//! they also grow over a restore of the file.

mod file;
mod transitions;

use std::time::Duration;

use async_trait::async_trait;
use file::{LockFile, ReleaseWatcher};
use holdoff_sql::{Component, Migration, SchemaChange};

use super::sql::{self, LockColumns, micros, number, text, token};
use crate::notify::{Notification, Subscription};
use crate::store::{AcquireOutcome, AcquireRequest, LeaseStore, ListQuery, Result};
use crate::{Holder, LockKey, LockRecord, Nonce, Token};

const COMPONENT: Component = Component {
    table: "holdoff_lock_migrations",
    migrations: &[Migration {
        version: 3,
        breaks_before: 3,
        change: SchemaChange::Statements(include_str!("sqlite/schema.sql")),
    }],
};

#[derive(Debug)]
pub(crate) struct SqliteStore {
    file: LockFile,
    watcher: ReleaseWatcher,
}

impl SqliteStore {
    /// Opens the file at this URL, and migrates the tables of locks.
    pub(crate) async fn open(url: &str) -> Result<Self> {
        let file = LockFile::open(url, &COMPONENT).await?;
        let watcher = ReleaseWatcher::new(file.readers().clone());
        Ok(Self { file, watcher })
    }

    /// Notifies the subscribers in this process at once. Other processes notice that the file has changed.
    fn notify(&self, key: &LockKey, notification: Option<Notification>) -> bool {
        notification.inspect(|notification| self.watcher.notify(key.digest(), *notification)).is_some()
    }
}

/// Reads a lock with the columns of `sql::LockColumns`. The first parameter is the time.
const READ: &str =
    "select l.namespace, l.key, l.digest, l.token, l.nonce, l.owner, ?1 - l.since, l.until - ?1,
        (select count(*) from holdoff_lock_waiters w where w.digest = l.digest and w.until > ?1)
    from holdoff_locks l";

#[async_trait]
impl LeaseStore for SqliteStore {
    async fn try_acquire(&self, request: &AcquireRequest) -> Result<AcquireOutcome> {
        transitions::try_acquire(&self.file, request).await
    }

    async fn renew(&self, key: &LockKey, nonce: Nonce, token: Token, lease: Duration) -> Result<bool> {
        let mut write = self.file.write().await?;
        let query = "update holdoff_locks set until = max(until, ?4)
            where digest = ?1 and nonce = ?2 and token = ?3";
        let renewed = sqlx::query(query)
            .bind(key.digest().as_slice())
            .bind(nonce.get())
            .bind(number(token))
            .bind(write.now + micros(lease))
            .execute(&mut *write.tx)
            .await?;
        write.tx.commit().await?;
        Ok(renewed.rows_affected() > 0)
    }

    async fn release(&self, key: &LockKey, nonce: Nonce, token: Token) -> Result<bool> {
        let notification = transitions::release(self.file.write_relaxed().await?, key, nonce, token).await?;
        Ok(self.notify(key, notification))
    }

    async fn withdraw(&self, key: &LockKey, nonce: Nonce) -> Result<()> {
        let notification = transitions::withdraw(self.file.write_relaxed().await?, key, nonce).await?;
        self.notify(key, notification);
        Ok(())
    }

    async fn read(&self, key: &LockKey) -> Result<Option<LockRecord>> {
        let query = format!("{READ} where l.digest = ?2");
        let row: Option<LockColumns> = sqlx::query_as(sqlx::AssertSqlSafe(query))
            .bind(self.file.now())
            .bind(key.digest().as_slice())
            .fetch_optional(self.file.readers())
            .await?;
        Ok(row.map(sql::record))
    }

    async fn granted(&self, key: &LockKey, nonce: Nonce) -> Result<Option<Token>> {
        let query = "select token from holdoff_locks where digest = ?1 and nonce = ?2";
        let found: Option<i64> = sqlx::query_scalar(query)
            .bind(key.digest().as_slice())
            .bind(nonce.get())
            .fetch_optional(self.file.readers())
            .await?;
        Ok(found.map(token))
    }

    async fn list(&self, list: &ListQuery) -> Result<Vec<LockRecord>> {
        let query = format!(
            "{READ} where (?2 is null or l.namespace = ?2)
                and (not ?3 or l.nonce is not null and l.until > ?1)
                and substr(l.key, 1, length(?4)) = ?4
                and (?6 is null or (l.namespace, l.key, lower(hex(l.digest))) > (?6, ?7, ?8))
            order by l.namespace, l.key, l.digest limit ?5"
        );
        let rows: Vec<LockColumns> = sqlx::query_as(sqlx::AssertSqlSafe(query))
            .bind(self.file.now())
            .bind(list.namespace.as_deref().map(text))
            .bind(list.held)
            .bind(text(&list.prefix))
            .bind(list.limit)
            .bind(list.after.as_ref().map(|cursor| text(&cursor.namespace)))
            .bind(list.after.as_ref().map(|cursor| text(&cursor.key)))
            .bind(list.after.as_ref().map(|cursor| text(&cursor.digest)))
            .fetch_all(self.file.readers())
            .await?;
        Ok(rows.into_iter().map(sql::record).collect())
    }

    async fn force_release(&self, key: &LockKey) -> Result<Option<Holder>> {
        // A forced release waits for the disk.
        let Some((holder, notification)) = transitions::force_release(self.file.write().await?, key).await?
        else {
            return Ok(None);
        };
        self.notify(key, Some(notification));
        Ok(holder)
    }

    async fn raise_floor(&self, floor: Token) -> Result<Token> {
        let mut write = self.file.write().await?;
        let query = "update holdoff_lock_token_base set floor = max(floor, ?1) returning floor";
        let floor: i64 = sqlx::query_scalar(query).bind(number(floor)).fetch_one(&mut *write.tx).await?;
        write.tx.commit().await?;
        Ok(token(floor))
    }

    async fn prune(&self, idle_for: Duration, limit: u32) -> Result<u64> {
        let mut write = self.file.write().await?;
        let sweep = "delete from holdoff_lock_waiters where (digest, nonce) in (
            select digest, nonce from holdoff_lock_waiters where until <= ?1 limit ?2)";
        sqlx::query(sweep).bind(write.now).bind(limit).execute(&mut *write.tx).await?;
        let query = "delete from holdoff_locks where digest in (
                select l.digest from holdoff_locks l
                where l.until <= ?1 and (l.reserved_for is null or l.reserved_until <= ?1)
                    and not exists (select 1 from holdoff_lock_waiters w where w.digest = l.digest and w.until > ?2)
                limit ?3)
            returning token";
        let gone: Vec<i64> = sqlx::query_scalar(query)
            .bind(write.now.saturating_sub(micros(idle_for)))
            .bind(write.now)
            .bind(limit)
            .fetch_all(&mut *write.tx)
            .await?;
        // In the same transaction: a lock that is created again starts above it.
        let floor = "update holdoff_lock_token_base set floor = max(floor, ?1)";
        sqlx::query(floor).bind(gone.iter().max().unwrap_or(&0)).execute(&mut *write.tx).await?;
        write.tx.commit().await?;
        Ok(gone.len() as u64)
    }

    fn subscribe(&self, key: &LockKey) -> Subscription {
        self.watcher.subscribe(key.digest())
    }
}

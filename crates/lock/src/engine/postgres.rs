//! Locks in Postgres.
//!
//! A call takes one round trip, or two if the lock was expected to be free and is not. Operations that must be atomic
//! are functions of the schema, which explains them.

mod connection_cache;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use connection_cache::ConnectionCache;
use holdoff_sql::postgres::{Pool, PoolOptions};
use holdoff_sql::{Component, Migration, SchemaChange};
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::sql::{self, LockColumns, micros, number, text, token};
use crate::key::digest_from_hex;
use crate::notify::{Notification, Subscribers, Subscription};
use crate::store::{
    AcquireOutcome, AcquireRefusal, AcquireRequest, LeaseStore, ListQuery, RESERVATION, Result,
};
use crate::store_clock::{ClockStep, StoreClock};
use crate::{Holder, LockKey, LockRecord, Nonce, Token, clock, metrics};

/// The session settings of every connection. The timeouts bound the wait for another transaction; the caller then asks
/// again. Tables grow from empty to many rows and shrink again, so their statistics are always wrong: rows are found
/// through their index, by a plan that is made once. Planning each statement would take as long as the rest of it.
const SETTINGS: &[&str] = &[
    "time zone 'UTC'",
    "lock_timeout = '5s'",
    "statement_timeout = '20s'",
    "idle_in_transaction_session_timeout = '60s'",
    "enable_seqscan = off",
    "plan_cache_mode = force_generic_plan",
    "jit = off",
    "synchronous_commit = off",
];

/// The sizes of the pool. One connection listens, and some are cached.
const CONNECTIONS: PoolOptions = PoolOptions { settings: SETTINGS, min: 1, max: 10 };

const COMPONENT: Component = Component {
    table: "holdoff.lock_migrations",
    migrations: &[Migration {
        version: 3,
        breaks_before: 3,
        change: SchemaChange::Statements(include_str!("postgres/schema.sql")),
    }],
};

#[derive(Debug)]
pub(crate) struct PostgresStore {
    pool: Pool,
    connections: ConnectionCache,
    listener: ReleaseListener,
    /// Whether the last lock was uncontended. If so, the next acquisition and release first use a plain update.
    is_uncontended: AtomicBool,
    clock: Mutex<StoreClock>,
}

/// The result of `lock_try`, and the server's time: the granted token and the number of waiters; or the holder's nonce,
/// name and token, the time since its grant, the time until the lock is free, and the number of waiters.
type TryRow =
    (Option<i64>, Option<Uuid>, Option<String>, Option<i64>, Option<i64>, Option<i64>, Option<i64>, i64);

impl PostgresStore {
    /// Opens the database at this URL, and migrates the tables of locks.
    pub(crate) async fn open(url: &str) -> Result<Self> {
        let pool = CONNECTIONS.open(url).await?;
        pool.migrate(&COMPONENT).await?;
        let listener = ReleaseListener::new(pool.clone());
        Ok(Self {
            connections: ConnectionCache::new(pool.clone()),
            pool,
            listener,
            is_uncontended: AtomicBool::new(true),
            clock: Mutex::default(),
        })
    }
}

/// Returns the id of the advisory lock that waiters share while they register, and that a release takes exclusively.
/// Two keys with the same id only wait for each other.
fn advisory_lock_id(key: &LockKey) -> i64 {
    key.digest().first_chunk().map_or(0, |first| i64::from_be_bytes(*first))
}

/// Reads a lock with the columns of `sql::LockColumns`.
const READ: &str = "select n.namespace, n.key, l.digest, l.token, l.nonce, l.owner,
        (extract(epoch from c.moment - l.since) * 1000000)::bigint,
        (extract(epoch from l.until - c.moment) * 1000000)::bigint,
        (select count(*) from holdoff.lock_waiters w where w.digest = l.digest and w.until > c.moment)
    from holdoff.lock_names n join holdoff.locks l on l.digest = n.digest,
        (select clock_timestamp() as moment offset 0) c";

/// Grants a released lock without waiters by a plain update, if `lock_recover` of the schema covers the grant. `lock_try`,
/// which covers all other cases, takes three times as long.
const TRY: &str = "update holdoff.locks l
    set token = holdoff.lock_next_token(l.token, m.floor), since = clock_timestamp(),
        until = clock_timestamp() + $4 * interval '1 microsecond', nonce = $2, owner = $3
    from holdoff.lock_crash_marker m
    where l.digest = $1 and l.nonce is null and l.reserved_for is null and not l.has_waiters
        and m.one and m.grants_from < clock_timestamp() and $4 <= m.longest_lease
        and greatest(l.token, m.floor, holdoff.lock_now()) < m.ceiling - 1000000
    returning l.token, holdoff.lock_now()";

/// Releases a lock without waiters by a plain update.
const RELEASE: &str =
    "update holdoff.locks set nonce = null, owner = null, until = clock_timestamp(), reserved_for = null
    where digest = $1 and nonce = $2 and token = $3 and not has_waiters";

impl PostgresStore {
    /// Returns the token if the lock is free and has neither a waiter nor a reservation.
    async fn try_uncontended(&self, request: &AcquireRequest) -> Result<Option<Token>> {
        let mut connection = self.connections.take().await?;
        let sent = clock::now();
        let granted: Option<(i64, i64)> = sqlx::query_as(TRY)
            .bind(request.key.digest().as_slice())
            .bind(request.owner.nonce.get())
            .bind(text(&request.owner.name))
            .bind(micros(request.lease))
            .fetch_optional(&mut *connection)
            .await?;
        connection.put_back().await?;
        Ok(granted.map(|(granted, server_us)| {
            self.read_clock(server_us, sent);
            token(granted)
        }))
    }

    /// Compares a reading of the server's clock with the own clock, and reports a step.
    fn read_clock(&self, server_us: i64, sent: Duration) {
        let step = self.clock.lock().read(sql::from_micros(server_us), sent, clock::now());
        let (direction, by) = match step {
            None => return,
            Some(ClockStep::Forward(by)) => ("forward", by),
            Some(ClockStep::Backward(by)) => ("backward", by),
        };
        metrics::store_clock_stepped(direction);
        tracing::warn!(
            direction,
            ?by,
            "detected a step of the wall clock of the store, which measures leases"
        );
    }

    /// Returns whether a lock without waiters was released.
    async fn release_uncontended(&self, key: &LockKey, nonce: Nonce, token: Token) -> Result<bool> {
        let mut connection = self.connections.take().await?;
        let released = sqlx::query(RELEASE)
            .bind(key.digest().as_slice())
            .bind(nonce.get())
            .bind(number(token))
            .execute(&mut *connection)
            .await?;
        connection.put_back().await?;
        Ok(released.rows_affected() > 0)
    }

    fn is_uncontended(&self) -> bool {
        self.is_uncontended.load(Ordering::Relaxed)
    }

    fn set_uncontended(&self, is_uncontended: bool) {
        self.is_uncontended.store(is_uncontended, Ordering::Relaxed);
    }
}

#[async_trait]
impl LeaseStore for PostgresStore {
    async fn try_acquire(&self, request: &AcquireRequest) -> Result<AcquireOutcome> {
        if self.is_uncontended()
            && let Some(token) = self.try_uncontended(request).await?
        {
            return Ok(AcquireOutcome::Granted(token));
        }
        let mut connection = self.connections.take().await?;
        let sent = clock::now();
        let query = "select *, holdoff.lock_now() from holdoff.lock_try($1, $2, $3, $4, $5, $6, $7, $8, $9)";
        let row: TryRow = sqlx::query_as(query)
            .bind(request.key.digest().as_slice())
            .bind(advisory_lock_id(&request.key))
            .bind(text(request.key.namespace()))
            .bind(request.key.readable())
            .bind(request.owner.nonce.get())
            .bind(text(&request.owner.name))
            .bind(micros(request.lease))
            .bind(request.waits_for.map(micros))
            .bind(sql::MAX_WAITERS)
            .fetch_one(&mut *connection)
            .await?;
        connection.put_back().await?;
        let (granted, nonce, owner, held_token, held_us, free_us, waiting, server_us) = row;
        self.read_clock(server_us, sent);
        self.set_uncontended(granted.is_some() && waiting.unwrap_or_default() == 0);
        if let Some(granted) = granted {
            return Ok(AcquireOutcome::Granted(token(granted)));
        }
        let free_us = free_us.unwrap_or_default();
        let (held_token, held_us) = (held_token.unwrap_or_default(), held_us.unwrap_or_default());
        Ok(AcquireOutcome::Refused(AcquireRefusal {
            holder: sql::holder(nonce, owner, held_token, held_us, free_us),
            free_in: sql::from_micros(free_us),
            waiting: sql::count(waiting.unwrap_or_default()),
        }))
    }

    /// Durable like a grant: if a crash lost a renewal, the store would grant the lock again while its holder considers
    /// it valid. After a crash, an expired lease cannot be renewed: a later grant may be lost.
    async fn renew(&self, key: &LockKey, nonce: Nonce, token: Token, lease: Duration) -> Result<bool> {
        let mut connection = self.connections.take().await?;
        let sent = clock::now();
        let query = "update holdoff.locks
            set until = greatest(until, clock_timestamp() + $4 * interval '1 microsecond')
            where digest = $1 and nonce = $2 and token = $3
                and (until > clock_timestamp() or exists (select from holdoff.lock_crash_marker))
                and set_config('synchronous_commit', 'on', true) = 'on'
            returning holdoff.lock_now()";
        let renewed: Option<i64> = sqlx::query_scalar(query)
            .bind(key.digest().as_slice())
            .bind(nonce.get())
            .bind(number(token))
            .bind(micros(lease))
            .fetch_optional(&mut *connection)
            .await?;
        connection.put_back().await?;
        Ok(renewed.inspect(|server_us| self.read_clock(*server_us, sent)).is_some())
    }

    async fn release(&self, key: &LockKey, nonce: Nonce, token: Token) -> Result<bool> {
        if self.is_uncontended() {
            if self.release_uncontended(key, nonce, token).await? {
                return Ok(true);
            }
            self.set_uncontended(false);
        }
        let mut connection = self.connections.take().await?;
        let released = sqlx::query_scalar("select holdoff.lock_release($1, $2, $3, $4, $5)")
            .bind(key.digest().as_slice())
            .bind(advisory_lock_id(key))
            .bind(nonce.get())
            .bind(number(token))
            .bind(micros(RESERVATION))
            .fetch_one(&mut *connection)
            .await?;
        connection.put_back().await?;
        Ok(released)
    }

    async fn withdraw(&self, key: &LockKey, nonce: Nonce) -> Result<()> {
        sqlx::query("select holdoff.lock_withdraw($1, $2, $3, $4)")
            .bind(key.digest().as_slice())
            .bind(advisory_lock_id(key))
            .bind(nonce.get())
            .bind(micros(RESERVATION))
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    async fn read(&self, key: &LockKey) -> Result<Option<LockRecord>> {
        let query = format!("{READ} where l.digest = $1");
        let row: Option<LockColumns> = sqlx::query_as(sqlx::AssertSqlSafe(query))
            .bind(key.digest().as_slice())
            .fetch_optional(&self.pool)
            .await?;
        Ok(row.map(sql::record))
    }

    async fn granted(&self, key: &LockKey, nonce: Nonce) -> Result<Option<Token>> {
        let query = "select token from holdoff.locks where digest = $1 and nonce = $2";
        let found: Option<i64> = sqlx::query_scalar(query)
            .bind(key.digest().as_slice())
            .bind(nonce.get())
            .fetch_optional(&self.pool)
            .await?;
        Ok(found.map(token))
    }

    async fn list(&self, list: &ListQuery) -> Result<Vec<LockRecord>> {
        let query = format!(
            "{READ} where ($1::text is null or n.namespace = $1)
                and (not $2 or l.nonce is not null and l.until > c.moment)
                and starts_with(n.key, $3)
                and ($5::text is null
                    or (n.namespace, n.key, encode(l.digest, 'hex') collate \"C\") > ($5, $6::text, $7::text))
            order by n.namespace, n.key, l.digest limit $4"
        );
        let rows: Vec<LockColumns> = sqlx::query_as(sqlx::AssertSqlSafe(query))
            .bind(list.namespace.as_deref().map(text))
            .bind(list.held)
            .bind(text(&list.prefix))
            .bind(i64::from(list.limit))
            .bind(list.after.as_ref().map(|cursor| text(&cursor.namespace)))
            .bind(list.after.as_ref().map(|cursor| text(&cursor.key)))
            .bind(list.after.as_ref().map(|cursor| text(&cursor.digest)))
            .fetch_all(&self.pool)
            .await?;
        Ok(rows.into_iter().map(sql::record).collect())
    }

    async fn force_release(&self, key: &LockKey) -> Result<Option<Holder>> {
        type ForceRow = (Option<Uuid>, Option<String>, Option<i64>, Option<i64>, Option<i64>);
        let (nonce, owner, token, held_us, ends_us): ForceRow =
            sqlx::query_as("select * from holdoff.lock_force_release($1, $2, $3)")
                .bind(key.digest().as_slice())
                .bind(advisory_lock_id(key))
                .bind(micros(RESERVATION))
                .fetch_one(&self.pool)
                .await?;
        let [token, held_us, ends_us] = [token, held_us, ends_us].map(Option::unwrap_or_default);
        Ok(sql::holder(nonce, owner, token, held_us, ends_us))
    }

    async fn raise_floor(&self, floor: Token) -> Result<Token> {
        // If the server has lost its memory, a recovery creates the row that repeats the floor.
        sqlx::query("select holdoff.lock_recover()").execute(&self.pool).await?;
        let mut tx = self.pool.begin().await?;
        sqlx::query("set local synchronous_commit = on").execute(&mut *tx).await?;
        // Grants that have read the old floor end before it is raised. Later grants wait to read the new one.
        sqlx::query("lock table holdoff.locks in share row exclusive mode").execute(&mut *tx).await?;
        let query = "update holdoff.lock_token_base set floor = greatest(floor, $1) returning floor";
        let floor: i64 = sqlx::query_scalar(query).bind(number(floor)).fetch_one(&mut *tx).await?;
        sqlx::query("update holdoff.lock_crash_marker set floor = $1").bind(floor).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(token(floor))
    }

    async fn prune(&self, idle_for: Duration, limit: u32) -> Result<u64> {
        let pruned: i64 = sqlx::query_scalar("select holdoff.lock_prune($1, $2)")
            .bind(micros(idle_for))
            .bind(i64::from(limit))
            .fetch_one(&self.pool)
            .await?;
        Ok(u64::try_from(pruned).unwrap_or_default())
    }

    fn subscribe(&self, key: &LockKey) -> Subscription {
        self.listener.subscribe(key.digest())
    }
}

/// Listens for NOTIFY, from the first subscription on. Through a pooler in transaction mode there is nothing to listen to:
/// waiters ask again by their policies.
#[derive(Debug)]
struct ReleaseListener {
    pool: Pool,
    subscribers: Subscribers,
    listener: OnceLock<Option<AbortOnDropHandle<()>>>,
}

impl ReleaseListener {
    fn new(pool: Pool) -> Self {
        Self { pool, subscribers: Subscribers::default(), listener: OnceLock::new() }
    }

    fn subscribe(&self, digest: &[u8; 32]) -> Subscription {
        let subscription = self.subscribers.subscribe(digest);
        self.listener.get_or_init(|| {
            let subscribers = self.subscribers.clone();
            holdoff_sql::postgres::listen(&self.pool, "holdoff_locks", move |payload| {
                match payload.and_then(parse_payload) {
                    Some((digest, notification)) => subscribers.notify(&digest, notification),
                    None => subscribers.notify_all(),
                }
            })
        });
        subscription
    }
}

/// Parses a payload: the digest in hexadecimal digits and, if the lock is reserved, a colon and the waiter's nonce.
fn parse_payload(payload: &str) -> Option<([u8; 32], Notification)> {
    let (digest, nonce) = match payload.split_once(':') {
        Some((digest, nonce)) => (digest, Some(Nonce::new(Uuid::parse_str(nonce).ok()?))),
        None => (payload, None),
    };
    Some((digest_from_hex(digest)?, nonce.map_or(Notification::MayBeFree, Notification::ReservedFor)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_parsed_and_a_malformed_one_is_rejected() {
        let nonce = Nonce::random();
        let digest = "0a".repeat(32);
        assert_eq!(parse_payload(&digest), Some(([10; 32], Notification::MayBeFree)));
        assert_eq!(
            parse_payload(&format!("{digest}:{nonce}")),
            Some(([10; 32], Notification::ReservedFor(nonce)))
        );
        for nonsense in ["", "0a", &"0g".repeat(32), &format!("{digest}:x"), &"é".repeat(32)] {
            assert_eq!(parse_payload(nonsense), None, "{nonsense}");
        }
    }
}

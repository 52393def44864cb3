//! Locks in Postgres.
//!
//! A call takes one round trip, or two if the lock was expected to be free and is not. Operations that must be atomic
//! are functions of the schema, which explains them.

mod at_hand;
mod wake;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use holdoff_sql::postgres::Connections;
use holdoff_sql::{Component, Migration};
use sqlx::PgPool;
use uuid::Uuid;

use super::sql::{self, Row, micros, number, text, token};
use crate::store::{Answer, Bid, HEADSTART, Held, LeaseStore, Listing, Result};
use crate::wakes::Subscription;
use crate::{Holder, Key, LockRecord, Nonce, Token};

/// The session settings of every connection. The timeouts bound the wait for another transaction; the caller then asks
/// again. Tables grow from empty to many rows and shrink again, so their statistics are always wrong: rows are found
/// through their index, by a plan that is made once. Planning each statement would take as long as the rest of it.
const SESSION: &str = "set time zone 'UTC';
    set lock_timeout = '5s';
    set statement_timeout = '20s';
    set idle_in_transaction_session_timeout = '60s';
    set enable_seqscan = off;
    set plan_cache_mode = force_generic_plan;
    set jit = off;
    set synchronous_commit = off";

/// The sizes of the pool. One connection listens, and some are cached.
const CONNECTIONS: Connections = Connections { session: SESSION, min: 1, max: 10 };

const COMPONENT: Component = Component {
    table: "holdoff.lock_migrations",
    migrations: &[Migration { version: 1, breaks_before: 1, sql: include_str!("postgres/schema.sql") }],
};

#[derive(Debug)]
pub(crate) struct Postgres {
    pool: PgPool,
    at_hand: at_hand::AtHand,
    wake: wake::Wake,
    /// Whether the last lock was uncontended. If so, the next acquisition and release first use a plain update.
    calm: AtomicBool,
}

/// The result of `lock_try`: the granted token and the number of waiters; or the holder's nonce, name and token, the
/// time since its grant, the time until the lock is free, and the number of waiters.
type Tried = (Option<i64>, Option<Uuid>, Option<String>, Option<i64>, Option<i64>, Option<i64>, Option<i64>);

impl Postgres {
    /// Opens the database at this URL, and migrates the tables of locks.
    pub(crate) async fn open(url: &str) -> Result<Self> {
        let pool = CONNECTIONS.open(url).await?;
        holdoff_sql::postgres::migrate(&mut *pool.acquire().await?, &COMPONENT).await?;
        let wake = wake::Wake::new(pool.clone());
        Ok(Self { at_hand: at_hand::AtHand::new(pool.clone()), pool, wake, calm: AtomicBool::new(true) })
    }
}

/// Returns the id of the advisory lock that waiters share while they register, and that a release takes exclusively.
/// Two keys with the same id only wait for each other.
fn lane(key: &Key) -> i64 {
    key.digest().first_chunk().map_or(0, |first| i64::from_be_bytes(*first))
}

/// Reads a lock with the columns of `sql::Row`.
const READ: &str = "select n.namespace, n.key, l.digest, l.token, l.nonce, l.owner,
        (extract(epoch from c.moment - l.since) * 1000000)::bigint,
        (extract(epoch from l.until - c.moment) * 1000000)::bigint,
        (select count(*) from holdoff.lock_waiters w where w.digest = l.digest and w.until > c.moment)
    from holdoff.lock_names n join holdoff.locks l on l.digest = n.digest,
        (select clock_timestamp() as moment offset 0) c";

/// Grants a released lock without waiters by a plain update. `lock_try` of the schema, which covers all other cases,
/// takes three times as long.
const TRY: &str = "update holdoff.locks l
    set token = greatest(l.token + 1, (m.era << 40) + 1), since = clock_timestamp(),
        until = clock_timestamp() + $4 * interval '1 microsecond', nonce = $2, owner = $3
    from holdoff.lock_memory m
    where l.digest = $1 and l.nonce is null and l.next is null and not l.awaited
        and m.one and m.settled < clock_timestamp() and $4 <= m.longest
    returning l.token";

/// Releases a lock without waiters by a plain update.
const RELEASE: &str =
    "update holdoff.locks set nonce = null, owner = null, until = clock_timestamp(), next = null
    where digest = $1 and nonce = $2 and token = $3 and not awaited";

impl Postgres {
    /// Returns the token if the lock is free and has neither a waiter nor a reservation.
    async fn try_plainly(&self, bid: &Bid) -> Result<Option<Token>> {
        let mut connection = self.at_hand.take().await?;
        let granted: Option<i64> = sqlx::query_scalar(TRY)
            .bind(bid.key.digest().as_slice())
            .bind(bid.owner.nonce.get())
            .bind(text(&bid.owner.name))
            .bind(micros(bid.lease))
            .fetch_optional(&mut *connection)
            .await?;
        connection.give_back();
        Ok(granted.map(token))
    }

    /// Returns whether a lock without waiters was released.
    async fn release_plainly(&self, key: &Key, nonce: Nonce, token: Token) -> Result<bool> {
        let mut connection = self.at_hand.take().await?;
        let released = sqlx::query(RELEASE)
            .bind(key.digest().as_slice())
            .bind(nonce.get())
            .bind(number(token))
            .execute(&mut *connection)
            .await?;
        connection.give_back();
        Ok(released.rows_affected() > 0)
    }

    fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    fn set_calm(&self, calm: bool) {
        self.calm.store(calm, Ordering::Relaxed);
    }
}

#[async_trait]
impl LeaseStore for Postgres {
    async fn try_acquire(&self, bid: &Bid) -> Result<Answer> {
        if self.is_calm()
            && let Some(token) = self.try_plainly(bid).await?
        {
            return Ok(Answer::Granted(token));
        }
        let mut connection = self.at_hand.take().await?;
        let tried: Tried =
            sqlx::query_as("select * from holdoff.lock_try($1, $2, $3, $4, $5, $6, $7, $8, $9)")
                .bind(bid.key.digest().as_slice())
                .bind(lane(&bid.key))
                .bind(text(bid.key.namespace()))
                .bind(bid.key.readable())
                .bind(bid.owner.nonce.get())
                .bind(text(&bid.owner.name))
                .bind(micros(bid.lease))
                .bind(bid.waits.map(micros))
                .bind(sql::MOST_WAITERS)
                .fetch_one(&mut *connection)
                .await?;
        connection.give_back();
        let (granted, nonce, owner, held_token, held_us, free_us, waiting) = tried;
        self.set_calm(granted.is_some() && waiting.unwrap_or_default() == 0);
        if let Some(granted) = granted {
            return Ok(Answer::Granted(token(granted)));
        }
        let free_us = free_us.unwrap_or_default();
        let (held_token, held_us) = (held_token.unwrap_or_default(), held_us.unwrap_or_default());
        Ok(Answer::Held(Held {
            holder: sql::holder(nonce, owner, held_token, held_us, free_us),
            free_in: sql::span(free_us),
            waiting: sql::count(waiting.unwrap_or_default()),
        }))
    }

    /// Durable like a grant: if a crash lost a renewal, the store would grant the lock again while its holder considers
    /// it valid.
    async fn renew(&self, key: &Key, nonce: Nonce, token: Token, lease: Duration) -> Result<bool> {
        let mut connection = self.at_hand.take().await?;
        let query = "update holdoff.locks
            set until = greatest(until, clock_timestamp() + $4 * interval '1 microsecond')
            where digest = $1 and nonce = $2 and token = $3
                and set_config('synchronous_commit', 'on', true) = 'on'";
        let renewed = sqlx::query(query)
            .bind(key.digest().as_slice())
            .bind(nonce.get())
            .bind(number(token))
            .bind(micros(lease))
            .execute(&mut *connection)
            .await?;
        connection.give_back();
        Ok(renewed.rows_affected() > 0)
    }

    async fn release(&self, key: &Key, nonce: Nonce, token: Token) -> Result<bool> {
        if self.is_calm() {
            if self.release_plainly(key, nonce, token).await? {
                return Ok(true);
            }
            self.set_calm(false);
        }
        let mut connection = self.at_hand.take().await?;
        let released = sqlx::query_scalar("select holdoff.lock_release($1, $2, $3, $4, $5)")
            .bind(key.digest().as_slice())
            .bind(lane(key))
            .bind(nonce.get())
            .bind(number(token))
            .bind(micros(HEADSTART))
            .fetch_one(&mut *connection)
            .await?;
        connection.give_back();
        Ok(released)
    }

    async fn withdraw(&self, key: &Key, nonce: Nonce) -> Result<()> {
        sqlx::query("select holdoff.lock_withdraw($1, $2, $3, $4)")
            .bind(key.digest().as_slice())
            .bind(lane(key))
            .bind(nonce.get())
            .bind(micros(HEADSTART))
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    async fn read(&self, key: &Key) -> Result<Option<LockRecord>> {
        let query = format!("{READ} where l.digest = $1");
        let row: Option<Row> = sqlx::query_as(sqlx::AssertSqlSafe(query))
            .bind(key.digest().as_slice())
            .fetch_optional(&self.pool)
            .await?;
        Ok(row.map(sql::record))
    }

    async fn granted(&self, key: &Key, nonce: Nonce) -> Result<Option<Token>> {
        let query = "select token from holdoff.locks where digest = $1 and nonce = $2";
        let found: Option<i64> = sqlx::query_scalar(query)
            .bind(key.digest().as_slice())
            .bind(nonce.get())
            .fetch_optional(&self.pool)
            .await?;
        Ok(found.map(token))
    }

    async fn list(&self, listing: &Listing) -> Result<Vec<LockRecord>> {
        let query = format!(
            "{READ} where ($1::text is null or n.namespace = $1)
                and (not $2 or l.nonce is not null and l.until > c.moment)
                and starts_with(n.key, $3)
                and ($5::text is null
                    or (n.namespace, n.key, encode(l.digest, 'hex') collate \"C\") > ($5, $6::text, $7::text))
            order by n.namespace, n.key, l.digest limit $4"
        );
        let rows: Vec<Row> = sqlx::query_as(sqlx::AssertSqlSafe(query))
            .bind(listing.namespace.as_deref().map(text))
            .bind(listing.held)
            .bind(text(&listing.prefix))
            .bind(i64::from(listing.limit))
            .bind(listing.after.as_ref().map(|mark| text(&mark.namespace)))
            .bind(listing.after.as_ref().map(|mark| text(&mark.key)))
            .bind(listing.after.as_ref().map(|mark| text(&mark.digest)))
            .fetch_all(&self.pool)
            .await?;
        Ok(rows.into_iter().map(sql::record).collect())
    }

    async fn force_release(&self, key: &Key) -> Result<Option<Holder>> {
        type Had = (Option<Uuid>, Option<String>, Option<i64>, Option<i64>, Option<i64>);
        let (nonce, owner, token, held_us, ends_us): Had =
            sqlx::query_as("select * from holdoff.lock_force($1, $2, $3)")
                .bind(key.digest().as_slice())
                .bind(lane(key))
                .bind(micros(HEADSTART))
                .fetch_one(&self.pool)
                .await?;
        let [token, held_us, ends_us] = [token, held_us, ends_us].map(Option::unwrap_or_default);
        Ok(sql::holder(nonce, owner, token, held_us, ends_us))
    }

    async fn raise_era(&self) -> Result<u64> {
        // If the server has lost its memory, that raises the fencing epoch, too. Do it first, so that this epoch is the
        // last.
        sqlx::query("select holdoff.lock_awake()").execute(&self.pool).await?;
        let mut tx = self.pool.begin().await?;
        sqlx::query("set local synchronous_commit = on").execute(&mut *tx).await?;
        // Grants that have read the old fencing epoch end before it is raised. Later grants wait to read the new one.
        sqlx::query("lock table holdoff.locks in share row exclusive mode").execute(&mut *tx).await?;
        let query = "update holdoff.lock_facts set era = era + 1 returning era";
        let era: i64 = sqlx::query_scalar(query).fetch_one(&mut *tx).await?;
        sqlx::query("update holdoff.lock_memory set era = $1").bind(era).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(u64::try_from(era).unwrap_or_default())
    }

    async fn prune(&self, idle_for: Duration, limit: u32) -> Result<u64> {
        let forgotten: i64 = sqlx::query_scalar("select holdoff.lock_prune($1, $2)")
            .bind(micros(idle_for))
            .bind(i64::from(limit))
            .fetch_one(&self.pool)
            .await?;
        Ok(u64::try_from(forgotten).unwrap_or_default())
    }

    fn subscribe(&self, key: &Key) -> Subscription {
        self.wake.subscribe(key.digest())
    }
}

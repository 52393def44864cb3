//! Requests for a lock.

use holdoff_sql::sqlite::Write;
use sqlx::SqliteExecutor;
use uuid::Uuid;

use super::file::File;
use crate::engine::sql::{self, MOST_WAITERS, count, micros, number, span, text};
use crate::store::{Answer, Bid, Held, Result};
use crate::{Key, Token};

/// The columns of a row that decide whether the lock is granted.
struct Seen {
    token: i64,
    nonce: Option<Uuid>,
    owner: Option<String>,
    since: i64,
    until: i64,
    next: Option<Uuid>,
    next_until: i64,
}

impl Seen {
    fn is_mine(&self, nonce: Uuid) -> bool {
        self.nonce == Some(nonce)
    }

    fn can_be_granted(&self, nonce: Uuid, now: i64) -> bool {
        match self.nonce {
            Some(holder) => holder == nonce || self.until <= now,
            None => self.next.is_none_or(|next| next == nonce) || self.next_until <= now,
        }
    }
}

/// Grants or refuses a bid. Most bids for a held lock are refused, so it reads first, and a refusal does not wait for
/// the disk.
pub(super) async fn bid(file: &File, bid: &Bid) -> Result<Answer> {
    let nonce = bid.owner.nonce.get();
    let now = file.now();
    if let Some(seen) = look(file.readers(), &bid.key).await?.filter(|seen| !seen.can_be_granted(nonce, now))
    {
        if bid.waits.is_none() {
            let waiting = others(file.readers(), bid, now).await?;
            return Ok(Answer::Held(held(seen, waiting, now)));
        }
        let mut write = file.write_relaxed().await?;
        let again = look(&mut *write.tx, &bid.key).await?;
        if let Some(seen) = again.filter(|seen| !seen.can_be_granted(nonce, write.now)) {
            return refuse(write, bid, seen).await;
        }
        // The lock was released in the meantime. A grant must be durable: start again.
        write.tx.rollback().await?;
    }
    let mut write = file.write().await?;
    match look(&mut *write.tx, &bid.key).await? {
        Some(seen) if !seen.can_be_granted(nonce, write.now) => refuse(write, bid, seen).await,
        seen => grant(write, bid, seen).await,
    }
}

async fn grant(mut write: Write, bid: &Bid, seen: Option<Seen>) -> Result<Answer> {
    let nonce = bid.owner.nonce.get();
    let (digest, until) = (bid.key.digest().as_slice(), write.now + micros(bid.lease));
    if let Some(mine) = seen.as_ref().filter(|seen| seen.is_mine(nonce)) {
        let query = "update holdoff_locks set until = max(until, ?2) where digest = ?1";
        sqlx::query(query).bind(digest).bind(until).execute(&mut *write.tx).await?;
        write.tx.commit().await?;
        return Ok(Answer::Granted(sql::token(mine.token)));
    }
    let facts = "select era, floor from holdoff_lock_facts";
    let (era, floor): (i64, i64) = sqlx::query_as(facts).fetch_one(&mut *write.tx).await?;
    let last = sql::token(seen.map_or(0, |seen| seen.token));
    let token: Token = last.next(u64::try_from(era).unwrap_or_default(), sql::token(floor));
    let query = "insert into holdoff_locks (digest, namespace, key, token, nonce, owner, since, until)
        values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
        on conflict (digest) do update set token = excluded.token, nonce = excluded.nonce, owner = excluded.owner,
            since = excluded.since, until = excluded.until, next = null";
    sqlx::query(query)
        .bind(digest)
        .bind(text(bid.key.namespace()))
        .bind(bid.key.readable())
        .bind(number(token))
        .bind(nonce)
        .bind(text(&bid.owner.name))
        .bind(write.now)
        .bind(until)
        .execute(&mut *write.tx)
        .await?;
    let sweep = "delete from holdoff_lock_waiters where digest = ?1 and (nonce = ?2 or until <= ?3)";
    sqlx::query(sweep).bind(digest).bind(nonce).bind(write.now).execute(&mut *write.tx).await?;
    write.tx.commit().await?;
    Ok(Answer::Granted(token))
}

async fn refuse(mut write: Write, bid: &Bid, seen: Seen) -> Result<Answer> {
    let mut waiting = others(&mut *write.tx, bid, write.now).await?;
    if let Some(waits) = bid.waits.filter(|_| waiting < MOST_WAITERS) {
        let query = "insert into holdoff_lock_waiters (digest, nonce, place, until)
            values (?1, ?2, (select coalesce(max(place), 0) + 1 from holdoff_lock_waiters where digest = ?1), ?3)
            on conflict (digest, nonce) do update set until = max(until, excluded.until)";
        sqlx::query(query)
            .bind(bid.key.digest().as_slice())
            .bind(bid.owner.nonce.get())
            .bind(write.now + micros(waits))
            .execute(&mut *write.tx)
            .await?;
        waiting += 1;
    }
    write.tx.commit().await?;
    Ok(Answer::Held(held(seen, waiting, write.now)))
}

fn held(seen: Seen, waiting: i64, now: i64) -> Held {
    let free_at = if seen.nonce.is_some() { seen.until } else { seen.next_until };
    let holder = sql::holder(seen.nonce, seen.owner, seen.token, now - seen.since, seen.until - now);
    Held { holder, free_in: span(free_at - now), waiting: count(waiting) }
}

async fn look(executor: impl SqliteExecutor<'_>, key: &Key) -> Result<Option<Seen>> {
    type Columns = (i64, Option<Uuid>, Option<String>, i64, i64, Option<Uuid>, i64);
    let query =
        "select token, nonce, owner, since, until, next, next_until from holdoff_locks where digest = ?1";
    let found: Option<Columns> =
        sqlx::query_as(query).bind(key.digest().as_slice()).fetch_optional(executor).await?;
    Ok(found.map(|(token, nonce, owner, since, until, next, next_until)| Seen {
        token,
        nonce,
        owner,
        since,
        until,
        next,
        next_until,
    }))
}

/// Returns the number of other waiters.
async fn others(executor: impl SqliteExecutor<'_>, bid: &Bid, now: i64) -> Result<i64> {
    let query = "select count(*) from (
        select 1 from holdoff_lock_waiters where digest = ?1 and until > ?2 and nonce <> ?3 limit ?4)";
    Ok(sqlx::query_scalar(query)
        .bind(bid.key.digest().as_slice())
        .bind(now)
        .bind(bid.owner.nonce.get())
        .bind(MOST_WAITERS)
        .fetch_one(executor)
        .await?)
}

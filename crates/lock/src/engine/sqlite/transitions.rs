//! The transitions of a lock: acquisition, release, and the reservation for the longest-waiting contender.

use holdoff_sql::sqlite::WriteTransaction;
use sqlx::SqliteExecutor;
use uuid::Uuid;

use super::file::LockFile;
use crate::engine::sql::{self, MAX_WAITERS, count, from_micros, micros, number, text};
use crate::notify::Notification;
use crate::store::{AcquireOutcome, AcquireRefusal, AcquireRequest, RESERVATION, Result};
use crate::token::TokenBase;
use crate::{Holder, LockKey, Nonce, Token, clock};

/// The columns of a row that decide whether the lock is granted.
struct GrantColumns {
    token: i64,
    nonce: Option<Uuid>,
    owner: Option<String>,
    since: i64,
    until: i64,
    reserved_for: Option<Uuid>,
    reserved_until: i64,
}

impl GrantColumns {
    fn is_held_by(&self, nonce: Uuid) -> bool {
        self.nonce == Some(nonce)
    }

    fn can_be_granted(&self, nonce: Uuid, now: i64) -> bool {
        match self.nonce {
            Some(holder) => holder == nonce || self.until <= now,
            None => self.reserved_for.is_none_or(|reserved| reserved == nonce) || self.reserved_until <= now,
        }
    }
}

/// Grants or refuses a request. Most requests for a held lock are refused, so it reads first, and a refusal does not
/// wait for the disk.
pub(super) async fn try_acquire(file: &LockFile, request: &AcquireRequest) -> Result<AcquireOutcome> {
    let nonce = request.owner.nonce.get();
    let now = file.now();
    if let Some(current) = read_current(file.readers(), &request.key)
        .await?
        .filter(|current| !current.can_be_granted(nonce, now))
    {
        if request.waits_for.is_none() {
            let waiting = count_others(file.readers(), request, now).await?;
            return Ok(AcquireOutcome::Refused(refusal(current, waiting, now)));
        }
        let mut write = file.write_relaxed().await?;
        let again = read_current(&mut *write.tx, &request.key).await?;
        if let Some(current) = again.filter(|current| !current.can_be_granted(nonce, write.now)) {
            return refuse(write, request, current).await;
        }
        // The lock was released in the meantime. A grant must be durable: start again.
        write.tx.rollback().await?;
    }
    let mut write = file.write().await?;
    match read_current(&mut *write.tx, &request.key).await? {
        Some(current) if !current.can_be_granted(nonce, write.now) => refuse(write, request, current).await,
        current => grant(write, request, current).await,
    }
}

async fn grant(
    mut write: WriteTransaction,
    request: &AcquireRequest,
    current: Option<GrantColumns>,
) -> Result<AcquireOutcome> {
    let nonce = request.owner.nonce.get();
    let (digest, until) = (request.key.digest().as_slice(), write.now + micros(request.lease));
    if let Some(mine) = current.as_ref().filter(|current| current.is_held_by(nonce)) {
        let query = "update holdoff_locks set until = max(until, ?2) where digest = ?1";
        sqlx::query(query).bind(digest).bind(until).execute(&mut *write.tx).await?;
        write.tx.commit().await?;
        return Ok(AcquireOutcome::Granted(sql::token(mine.token)));
    }
    let query = "select floor from holdoff_lock_token_base";
    let floor: i64 = sqlx::query_scalar(query).fetch_one(&mut *write.tx).await?;
    let token = sql::token(current.map_or(0, |current| current.token)).next(token_base(floor));
    let query = "insert into holdoff_locks (digest, namespace, key, token, nonce, owner, since, until)
        values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
        on conflict (digest) do update set token = excluded.token, nonce = excluded.nonce, owner = excluded.owner,
            since = excluded.since, until = excluded.until, reserved_for = null";
    sqlx::query(query)
        .bind(digest)
        .bind(text(request.key.namespace()))
        .bind(request.key.readable())
        .bind(number(token))
        .bind(nonce)
        .bind(text(&request.owner.name))
        .bind(write.now)
        .bind(until)
        .execute(&mut *write.tx)
        .await?;
    let sweep = "delete from holdoff_lock_waiters where digest = ?1 and (nonce = ?2 or until <= ?3)";
    sqlx::query(sweep).bind(digest).bind(nonce).bind(write.now).execute(&mut *write.tx).await?;
    write.tx.commit().await?;
    Ok(AcquireOutcome::Granted(token))
}

/// Returns the base of a token that is granted now.
fn token_base(floor: i64) -> TokenBase {
    TokenBase { floor: sql::token(floor), wall: clock::wall() }
}

async fn refuse(
    mut write: WriteTransaction,
    request: &AcquireRequest,
    current: GrantColumns,
) -> Result<AcquireOutcome> {
    let mut waiting = count_others(&mut *write.tx, request, write.now).await?;
    if let Some(waits_for) = request.waits_for.filter(|_| waiting < MAX_WAITERS) {
        let query = "insert into holdoff_lock_waiters (digest, nonce, position, until)
            values (?1, ?2, (select coalesce(max(position), 0) + 1 from holdoff_lock_waiters where digest = ?1), ?3)
            on conflict (digest, nonce) do update set until = max(until, excluded.until)";
        sqlx::query(query)
            .bind(request.key.digest().as_slice())
            .bind(request.owner.nonce.get())
            .bind(write.now + micros(waits_for))
            .execute(&mut *write.tx)
            .await?;
        waiting += 1;
    }
    write.tx.commit().await?;
    Ok(AcquireOutcome::Refused(refusal(current, waiting, write.now)))
}

fn refusal(current: GrantColumns, waiting: i64, now: i64) -> AcquireRefusal {
    let free_at = if current.nonce.is_some() { current.until } else { current.reserved_until };
    let holder =
        sql::holder(current.nonce, current.owner, current.token, now - current.since, current.until - now);
    AcquireRefusal { holder, free_in: from_micros(free_at - now), waiting: count(waiting) }
}

async fn read_current(executor: impl SqliteExecutor<'_>, key: &LockKey) -> Result<Option<GrantColumns>> {
    type Columns = (i64, Option<Uuid>, Option<String>, i64, i64, Option<Uuid>, i64);
    let query = "select token, nonce, owner, since, until, reserved_for, reserved_until from holdoff_locks where digest = ?1";
    let found: Option<Columns> =
        sqlx::query_as(query).bind(key.digest().as_slice()).fetch_optional(executor).await?;
    Ok(found.map(|(token, nonce, owner, since, until, reserved_for, reserved_until)| GrantColumns {
        token,
        nonce,
        owner,
        since,
        until,
        reserved_for,
        reserved_until,
    }))
}

/// Returns the number of other waiters.
async fn count_others(executor: impl SqliteExecutor<'_>, request: &AcquireRequest, now: i64) -> Result<i64> {
    let query = "select count(*) from (
        select 1 from holdoff_lock_waiters where digest = ?1 and until > ?2 and nonce <> ?3 limit ?4)";
    Ok(sqlx::query_scalar(query)
        .bind(request.key.digest().as_slice())
        .bind(now)
        .bind(request.owner.nonce.get())
        .bind(MAX_WAITERS)
        .fetch_one(executor)
        .await?)
}

/// Releases the lock, and returns the notification to send; `None` if this nonce and token do not hold it.
pub(super) async fn release(
    mut write: WriteTransaction,
    key: &LockKey,
    nonce: Nonce,
    token: Token,
) -> Result<Option<Notification>> {
    let query = "select 1 from holdoff_locks where digest = ?1 and nonce = ?2 and token = ?3";
    let mine: Option<i64> = sqlx::query_scalar(query)
        .bind(key.digest().as_slice())
        .bind(nonce.get())
        .bind(number(token))
        .fetch_optional(&mut *write.tx)
        .await?;
    if mine.is_none() {
        return Ok(None);
    }
    let notification = free(&mut write, key).await?;
    write.tx.commit().await?;
    Ok(Some(notification))
}

/// Removes all state of a nonce. Returns the notification to send if the nonce held the lock or had its reservation.
pub(super) async fn withdraw(
    mut write: WriteTransaction,
    key: &LockKey,
    nonce: Nonce,
) -> Result<Option<Notification>> {
    let digest = key.digest().as_slice();
    let query = "delete from holdoff_lock_waiters where digest = ?1 and nonce = ?2";
    let waited = sqlx::query(query).bind(digest).bind(nonce.get()).execute(&mut *write.tx).await?;
    let query = "select 1 from holdoff_locks
        where digest = ?1 and (nonce = ?2 or nonce is null and reserved_for = ?2)";
    let mine: Option<i64> =
        sqlx::query_scalar(query).bind(digest).bind(nonce.get()).fetch_optional(&mut *write.tx).await?;
    let notification = match mine {
        Some(_) => Some(free(&mut write, key).await?),
        None if waited.rows_affected() == 0 => return Ok(None),
        None => None,
    };
    write.tx.commit().await?;
    Ok(notification)
}

/// Takes the lock from its holder. Returns the holder, if its lease had not expired, and the notification to send;
/// `None` if the lock was not held.
pub(super) async fn force_release(
    mut write: WriteTransaction,
    key: &LockKey,
) -> Result<Option<(Option<Holder>, Notification)>> {
    let query = "select l.token, l.nonce, l.owner, l.since, l.until, f.floor
        from holdoff_locks l, holdoff_lock_token_base f where l.digest = ?1 and l.nonce is not null";
    let held: Option<(i64, Uuid, String, i64, i64, i64)> =
        sqlx::query_as(query).bind(key.digest().as_slice()).fetch_optional(&mut *write.tx).await?;
    let Some((token, nonce, owner, since, until, floor)) = held else { return Ok(None) };
    let raised = sql::token(token).next(token_base(floor));
    let query = "update holdoff_locks set token = ?2 where digest = ?1";
    sqlx::query(query).bind(key.digest().as_slice()).bind(number(raised)).execute(&mut *write.tx).await?;
    let notification = free(&mut write, key).await?;
    let holder = sql::holder(Some(nonce), Some(owner), token, write.now - since, until - write.now);
    write.tx.commit().await?;
    Ok(Some((holder, notification)))
}

/// Marks the lock as free, and reserves it for the longest-waiting contender.
async fn free(write: &mut WriteTransaction, key: &LockKey) -> Result<Notification> {
    let query = "update holdoff_locks set nonce = null, owner = null, until = ?2, reserved_until = ?3,
            reserved_for = (select nonce from holdoff_lock_waiters where digest = ?1 and until > ?2 order by position limit 1)
        where digest = ?1 returning reserved_for";
    let reserved_for: Option<Uuid> = sqlx::query_scalar(query)
        .bind(key.digest().as_slice())
        .bind(write.now)
        .bind(write.now + micros(RESERVATION))
        .fetch_one(&mut *write.tx)
        .await?;
    Ok(reserved_for.map_or(Notification::MayBeFree, |nonce| Notification::ReservedFor(Nonce::new(nonce))))
}

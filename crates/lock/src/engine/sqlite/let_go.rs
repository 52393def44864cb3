//! The release of a lock, and its reservation for the longest-waiting contender.

use holdoff_sql::sqlite::Write;
use uuid::Uuid;

use crate::engine::sql::{self, micros, number};
use crate::store::{HEADSTART, Result};
use crate::wakes::Heard;
use crate::{Holder, Key, Nonce, Token};

/// Releases the lock, and returns the notification to send; `None` if this nonce and token do not hold it.
pub(super) async fn release(
    mut write: Write,
    key: &Key,
    nonce: Nonce,
    token: Token,
) -> Result<Option<Heard>> {
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
    let heard = let_go(&mut write, key).await?;
    write.tx.commit().await?;
    Ok(Some(heard))
}

/// Removes all state of a nonce. Returns the notification to send if the nonce held the lock or had its reservation.
pub(super) async fn withdraw(mut write: Write, key: &Key, nonce: Nonce) -> Result<Option<Heard>> {
    let digest = key.digest().as_slice();
    let query = "delete from holdoff_lock_waiters where digest = ?1 and nonce = ?2";
    let waited = sqlx::query(query).bind(digest).bind(nonce.get()).execute(&mut *write.tx).await?;
    let query = "select 1 from holdoff_locks
        where digest = ?1 and (nonce = ?2 or nonce is null and next = ?2)";
    let mine: Option<i64> =
        sqlx::query_scalar(query).bind(digest).bind(nonce.get()).fetch_optional(&mut *write.tx).await?;
    let heard = match mine {
        Some(_) => Some(let_go(&mut write, key).await?),
        None if waited.rows_affected() == 0 => return Ok(None),
        None => None,
    };
    write.tx.commit().await?;
    Ok(heard)
}

/// Takes the lock from its holder. Returns the holder, if its lease had not expired, and the notification to send;
/// `None` if the lock was not held.
pub(super) async fn force(mut write: Write, key: &Key) -> Result<Option<(Option<Holder>, Heard)>> {
    let query = "select l.token, l.nonce, l.owner, l.since, l.until, f.era, f.floor
        from holdoff_locks l, holdoff_lock_facts f where l.digest = ?1 and l.nonce is not null";
    let had: Option<(i64, Uuid, String, i64, i64, i64, i64)> =
        sqlx::query_as(query).bind(key.digest().as_slice()).fetch_optional(&mut *write.tx).await?;
    let Some((token, nonce, owner, since, until, era, floor)) = had else { return Ok(None) };
    let raised = sql::token(token).next(u64::try_from(era).unwrap_or_default(), sql::token(floor));
    let query = "update holdoff_locks set token = ?2 where digest = ?1";
    sqlx::query(query).bind(key.digest().as_slice()).bind(number(raised)).execute(&mut *write.tx).await?;
    let heard = let_go(&mut write, key).await?;
    let holder = sql::holder(Some(nonce), Some(owner), token, write.now - since, until - write.now);
    write.tx.commit().await?;
    Ok(Some((holder, heard)))
}

/// Marks the lock as free, and reserves it for the longest-waiting contender.
async fn let_go(write: &mut Write, key: &Key) -> Result<Heard> {
    let query = "update holdoff_locks set nonce = null, owner = null, until = ?2, next_until = ?3,
            next = (select nonce from holdoff_lock_waiters where digest = ?1 and until > ?2 order by place limit 1)
        where digest = ?1 returning next";
    let next: Option<Uuid> = sqlx::query_scalar(query)
        .bind(key.digest().as_slice())
        .bind(write.now)
        .bind(write.now + micros(HEADSTART))
        .fetch_one(&mut *write.tx)
        .await?;
    Ok(next.map_or(Heard::Maybe, |nonce| Heard::Next(Nonce::new(nonce))))
}

//! The content of a lock's row, and of the row of the floor.
//!
//! A row records no time, only durations, and for each duration the version in which it was last written
//! (`since_version`). A reader counts from the time at which it first saw that version, on its own clock, and so gets a
//! [`Row`] to decide by.
//! It writes its decision back as durations.

use std::time::Duration;

use holdoff_ledger::machine::{Command, Key, Value};
use holdoff_policy::as_micros_u64;
use serde::{Deserialize, Serialize};

use crate::row::{LeaseRow, Row, Waiter};
use crate::store::Result;
use crate::{Error, LockKey, Nonce, Owner, Token};

/// The name of the row of the floor. It is not among the names of locks.
const FLOOR_ROW: &str = "holdoff/locks";

/// A lock, as it is stored in the table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct StoredLock {
    /// Grows with every write, also over the pruning of the lock: no two rows of a lock are ever equal.
    pub(super) version: u64,
    pub(super) namespace: String,
    pub(super) key: String,
    pub(super) token: Token,
    holder: Option<HolderRecord>,
    waiters: Vec<WaiterRecord>,
    /// The waiter with the reservation.
    reserved: Option<WaiterRecord>,
    /// The time since 1970 on the writer's clock. No lease depends on it; the pruning of unheld locks does.
    pub(super) written_s: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct HolderRecord {
    owner: Owner,
    token: Token,
    /// How long the holder had held the lock when this was written.
    held_us: u64,
    #[serde(flatten)]
    span: VersionedDuration,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct WaiterRecord {
    nonce: Nonce,
    #[serde(flatten)]
    span: VersionedDuration,
}

/// A duration that starts with the write of a version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct VersionedDuration {
    since_version: u64,
    duration_us: u64,
}

/// The parameters of a write.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteParams {
    /// The version, above that of the replaced row.
    pub(super) version: u64,
    /// The time at which the replaced row was read.
    pub(super) now: Duration,
    /// The nonce whose lease starts again, if it holds the lock.
    pub(super) renewed: Option<Nonce>,
    pub(super) written_s: u64,
}

impl StoredLock {
    /// Reads the lock of a row.
    pub(super) fn read(value: &Value) -> Result<Self> {
        let Value::Text(text) = value else {
            return Err(Error::store(false, "the row of a lock is not text: another program wrote it"));
        };
        let read = serde_json::from_str(text.as_str());
        read.map_err(|error| Error::store(false, format!("the row of a lock is malformed: {error}")))
    }

    pub(super) fn value(&self) -> Result<Value> {
        let text = serde_json::to_string(self).map_err(|error| Error::store(false, error))?;
        Value::text(text).map_err(|error| Error::store(false, error))
    }

    /// Returns the lock on the local clock, on which each version was first seen at `since`.
    pub(super) fn row(&self, since: impl Fn(u64) -> Duration) -> Row {
        let until = |span: VersionedDuration| {
            since(span.since_version).saturating_add(Duration::from_micros(span.duration_us))
        };
        let waiter = |waiting: &WaiterRecord| Waiter { nonce: waiting.nonce, until: until(waiting.span) };
        let lease = self.holder.as_ref().map(|held| LeaseRow {
            owner: held.owner.clone(),
            token: held.token,
            since: since(held.span.since_version).saturating_sub(Duration::from_micros(held.held_us)),
            until: until(held.span),
        });
        Row {
            token: self.token,
            lease,
            waiters: self.waiters.iter().map(waiter).collect(),
            reserved: self.reserved.as_ref().map(waiter),
            touched: since(self.version),
        }
    }

    /// Returns the stored form of a changed row. Every part that is unchanged since `before`, a stored lock with its row,
    /// keeps its version.
    pub(super) fn written(
        key: &LockKey,
        row: &Row,
        before: Option<(&Self, &Row)>,
        params: WriteParams,
    ) -> Self {
        let WriteParams { version, now, renewed, written_s } = params;
        let anew = |until: Duration| VersionedDuration {
            since_version: version,
            duration_us: as_micros_u64(until.saturating_sub(now)),
        };
        let known = before.map(|(stored, _)| &stored.waiters).into_iter().flatten();
        let known: Vec<_> = known.zip(before.map(|(_, row)| &row.waiters).into_iter().flatten()).collect();
        let waiting = |waiter: &Waiter| {
            let same = |(_, seen): &&(_, &Waiter)| (seen.nonce, seen.until) == (waiter.nonce, waiter.until);
            let span =
                known.iter().find(same).map_or_else(|| anew(waiter.until), |(waiting, _)| waiting.span);
            WaiterRecord { nonce: waiter.nonce, span }
        };
        let reserved = row.reserved.map(|reserved| {
            let same = before.and_then(|(stored, row)| stored.reserved.as_ref().zip(row.reserved));
            let same = same.filter(|(_, seen)| (seen.nonce, seen.until) == (reserved.nonce, reserved.until));
            WaiterRecord {
                nonce: reserved.nonce,
                span: same.map_or_else(|| anew(reserved.until), |(next, _)| next.span),
            }
        });
        let holder = row.lease.as_ref().map(|lease| {
            let held = before.and_then(|(stored, _)| stored.holder.as_ref());
            let is_same =
                |held: &&HolderRecord| held.owner.nonce == lease.owner.nonce && held.token == lease.token;
            let same = held.filter(is_same).filter(|held| Some(held.owner.nonce) != renewed);
            same.cloned().unwrap_or_else(|| HolderRecord {
                owner: lease.owner.clone(),
                token: lease.token,
                held_us: as_micros_u64(now.saturating_sub(lease.since)),
                span: anew(lease.until),
            })
        });
        Self {
            version,
            namespace: key.namespace().to_owned(),
            key: key.readable().to_owned(),
            token: row.token,
            holder,
            waiters: row.waiters.iter().map(waiting).collect(),
            reserved,
            written_s,
        }
    }

    /// Returns whether both entries have the same content, regardless of the time of their writes.
    pub(super) fn has_same_content(&self, other: &Self) -> bool {
        (self.token, &self.holder, &self.waiters, &self.reserved)
            == (other.token, &other.holder, &other.waiters, &other.reserved)
    }

    /// Returns whether the row changes often, as far as the contender can see: other clients wait for the lock or hold it.
    pub(super) fn is_contended(&self, contender: Option<Nonce>) -> bool {
        let is_held_by_another = |contender: Nonce| self.holder().is_some_and(|holder| holder != contender);
        !self.waiters.is_empty() || self.reserved.is_some() || contender.is_some_and(is_held_by_another)
    }

    /// Returns whether the lock has a holder or waiters.
    pub(super) fn is_in_use(&self) -> bool {
        self.holder.is_some() || !self.waiters.is_empty() || self.reserved.is_some()
    }

    /// Returns every version that a part of the lock starts from, including its own.
    pub(super) fn versions(&self) -> impl Iterator<Item = u64> {
        let waiting = self.waiters.iter().chain(&self.reserved).map(|waiting| waiting.span.since_version);
        let held = self.holder.iter().map(|held| held.span.since_version);
        waiting.chain(held).chain([self.version])
    }

    /// Returns the holder.
    pub(super) fn holder(&self) -> Option<Nonce> {
        self.holder.as_ref().map(|held| held.owner.nonce)
    }

    /// Returns the waiter with the reservation, and the version of the reservation.
    pub(super) fn reserved(&self) -> Option<(Nonce, u64)> {
        self.reserved.as_ref().map(|next| (next.nonce, next.span.since_version))
    }
}

/// The row of the floor.
#[derive(Serialize, Deserialize)]
struct FloorRow {
    floor: Token,
}

pub(super) fn floor_key() -> Result<Key> {
    Key::new(FLOOR_ROW).map_err(|error| Error::store(false, error))
}

/// Reads the row of the floor. Before the first write, the floor is 0.
pub(super) fn read_floor(value: Option<&Value>) -> Result<Token> {
    match value {
        None => Ok(Token::new(0)),
        Some(Value::Text(text)) => {
            let row: FloorRow = serde_json::from_str(text.as_str())
                .map_err(|error| Error::store(false, format!("the row {FLOOR_ROW} is malformed: {error}")))?;
            Ok(row.floor)
        }
        Some(_) => {
            Err(Error::store(false, format!("the row {FLOOR_ROW} is not text: another program wrote it")))
        }
    }
}

/// Returns the command that makes a transaction conditional on an unchanged floor.
pub(super) fn expect_floor(value: Option<Value>) -> Result<Command> {
    Ok(Command::CompareAndSet { key: floor_key()?, expected: value.clone(), new: value })
}

/// Returns the command that replaces the floor.
pub(super) fn replace_floor(before: Option<Value>, floor: Token) -> Result<Command> {
    let text = serde_json::to_string(&FloorRow { floor }).map_err(|error| Error::store(false, error))?;
    let new = Value::text(text).map_err(|error| Error::store(false, error))?;
    Ok(Command::CompareAndSet { key: floor_key()?, expected: before, new: Some(new) })
}

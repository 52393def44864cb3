//! The content of a lock's row.
//!
//! A row records no time, only durations, and for each duration the version in which it was last written: its *beat*. A
//! reader counts from the time at which it first saw that beat, on its own clock, and so gets a [`Row`] to decide by.
//! It writes its decision back as durations.

use std::time::Duration;

use holdoff_ledger::machine::Value;
use serde::{Deserialize, Serialize};

use super::table::trouble;
use crate::row::{Lease, Row, Waiter};
use crate::store::Result;
use crate::{Key, Nonce, Owner, Token};

/// A lock, as it is stored in the table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Grows with every write, also over the pruning of the lock: no two rows of a lock are ever equal.
    pub(super) version: u64,
    pub(super) namespace: String,
    pub(super) key: String,
    pub(super) token: Token,
    holder: Option<Held>,
    line: Vec<Waiting>,
    next: Option<Waiting>,
    /// The time since 1970 on the writer's clock. No lease depends on it; the pruning of unheld locks does.
    pub(super) written_s: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Held {
    owner: Owner,
    token: Token,
    /// How long the holder had held the lock when this was written.
    had_us: u64,
    #[serde(flatten)]
    span: Span,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Waiting {
    nonce: Nonce,
    #[serde(flatten)]
    span: Span,
}

/// A duration that starts with the write of a version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Span {
    beat: u64,
    lasts_us: u64,
}

/// The parameters of a write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writing {
    /// The version, above that of the replaced row.
    pub(super) version: u64,
    /// The time at which the replaced row was read.
    pub(super) now: Duration,
    /// The nonce whose lease starts again, if it holds the lock.
    pub(super) renews: Option<Nonce>,
    pub(super) written_s: u64,
}

impl Entry {
    /// Reads the lock of a row.
    pub(super) fn read(value: &Value) -> Result<Self> {
        let Value::Text(text) = value else { return Err(trouble(false, "a lock's row is no text")) };
        let read = serde_json::from_str(text.as_str());
        read.map_err(|error| trouble(false, format!("a lock's row cannot be read: {error}")))
    }

    pub(super) fn value(&self) -> Result<Value> {
        let text = serde_json::to_string(self).map_err(|error| trouble(false, error))?;
        Value::text(text).map_err(|error| trouble(false, error))
    }

    /// Returns the lock on the local clock, on which each beat was first seen at `since`.
    pub(super) fn row(&self, since: impl Fn(u64) -> Duration) -> Row {
        let until = |span: Span| since(span.beat).saturating_add(Duration::from_micros(span.lasts_us));
        let waiter = |waiting: &Waiting| Waiter { nonce: waiting.nonce, until: until(waiting.span) };
        let lease = self.holder.as_ref().map(|held| Lease {
            owner: held.owner.clone(),
            token: held.token,
            since: since(held.span.beat).saturating_sub(Duration::from_micros(held.had_us)),
            until: until(held.span),
        });
        Row {
            token: self.token,
            lease,
            line: self.line.iter().map(waiter).collect(),
            kept: self.next.as_ref().map(waiter),
            touched: since(self.version),
        }
    }

    /// Returns the entry of a changed row. Every part that is unchanged since `before`, an entry with its row, keeps
    /// its beat.
    pub(super) fn written(key: &Key, row: &Row, before: Option<(&Self, &Row)>, writing: Writing) -> Self {
        let Writing { version, now, renews, written_s } = writing;
        let anew = |until: Duration| Span { beat: version, lasts_us: micros(until.saturating_sub(now)) };
        let known = before.map(|(entry, _)| &entry.line).into_iter().flatten();
        let known: Vec<_> = known.zip(before.map(|(_, row)| &row.line).into_iter().flatten()).collect();
        let waiting = |waiter: &Waiter| {
            let same = |(_, seen): &&(_, &Waiter)| (seen.nonce, seen.until) == (waiter.nonce, waiter.until);
            let span =
                known.iter().find(same).map_or_else(|| anew(waiter.until), |(waiting, _)| waiting.span);
            Waiting { nonce: waiter.nonce, span }
        };
        let next = row.kept.map(|kept| {
            let same = before.and_then(|(entry, row)| entry.next.as_ref().zip(row.kept));
            let same = same.filter(|(_, seen)| (seen.nonce, seen.until) == (kept.nonce, kept.until));
            Waiting { nonce: kept.nonce, span: same.map_or_else(|| anew(kept.until), |(next, _)| next.span) }
        });
        let holder = row.lease.as_ref().map(|lease| {
            let held = before.and_then(|(entry, _)| entry.holder.as_ref());
            let is_same = |held: &&Held| held.owner.nonce == lease.owner.nonce && held.token == lease.token;
            let same = held.filter(is_same).filter(|held| Some(held.owner.nonce) != renews);
            same.cloned().unwrap_or_else(|| Held {
                owner: lease.owner.clone(),
                token: lease.token,
                had_us: micros(now.saturating_sub(lease.since)),
                span: anew(lease.until),
            })
        });
        Self {
            version,
            namespace: key.namespace().to_owned(),
            key: key.readable().to_owned(),
            token: row.token,
            holder,
            line: row.line.iter().map(waiting).collect(),
            next,
            written_s,
        }
    }

    /// Returns whether both entries have the same content, regardless of the time of their writes.
    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        (self.token, &self.holder, &self.line, &self.next)
            == (other.token, &other.holder, &other.line, &other.next)
    }

    /// Returns whether the row changes often, as far as the bidder can see: other clients wait for the lock or hold it.
    pub(super) fn is_contended(&self, bidder: Option<Nonce>) -> bool {
        let is_anothers = |bidder: Nonce| self.holder().is_some_and(|holder| holder != bidder);
        !self.line.is_empty() || self.next.is_some() || bidder.is_some_and(is_anothers)
    }

    /// Returns whether the lock has a holder or waiters.
    pub(super) fn is_in_use(&self) -> bool {
        self.holder.is_some() || !self.line.is_empty() || self.next.is_some()
    }

    /// Returns every beat in the entry, including its own version.
    pub(super) fn beats(&self) -> impl Iterator<Item = u64> {
        let waiting = self.line.iter().chain(&self.next).map(|waiting| waiting.span.beat);
        let held = self.holder.iter().map(|held| held.span.beat);
        waiting.chain(held).chain([self.version])
    }

    /// Returns the holder.
    pub(super) fn holder(&self) -> Option<Nonce> {
        self.holder.as_ref().map(|held| held.owner.nonce)
    }

    /// Returns the waiter with the reservation, and the beat of the reservation.
    pub(super) fn next(&self) -> Option<(Nonce, u64)> {
        self.next.as_ref().map(|next| (next.nonce, next.span.beat))
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

//! What a row of the table says of a lock.
//!
//! A row knows no time, only how long something lasts and in which version it was last written: its *beat*. Whoever reads
//! it counts from when it first saw that beat, on its own clock, and has a [`Row`] to decide by; what it decided goes back
//! as lengths again.

use std::time::Duration;

use holdoff_ledger::machine::Value;
use serde::{Deserialize, Serialize};

use super::table::trouble;
use crate::row::{Lease, Row, Waiter};
use crate::store::Result;
use crate::{Key, Nonce, Owner, Token};

/// A lock, as it stands in the table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Entry {
    /// It rises with every write, also over the lock's being forgotten: no two rows of a lock are ever alike.
    pub(super) version: u64,
    pub(super) namespace: String,
    pub(super) key: String,
    pub(super) token: Token,
    holder: Option<Held>,
    line: Vec<Waiting>,
    next: Option<Waiting>,
    /// Since 1970, by the clock of whoever wrote it. No lease depends on it: locks that nobody holds are forgotten by it.
    pub(super) written_s: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Held {
    owner: Owner,
    token: Token,
    /// How long it had it by then.
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

/// So long, from when it was written in that version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Span {
    beat: u64,
    lasts_us: u64,
}

/// What is written, and by whom.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writing {
    /// Above that of the row it replaces.
    pub(super) version: u64,
    /// What time it was when the row before it came.
    pub(super) now: Duration,
    /// Whose lease begins anew, if it has one.
    pub(super) renews: Option<Nonce>,
    pub(super) written_s: u64,
}

impl Entry {
    /// The lock that this row is about.
    pub(super) fn read(value: &Value) -> Result<Self> {
        let Value::Text(text) = value else { return Err(trouble(false, "a lock's row is no text")) };
        let read = serde_json::from_str(text.as_str());
        read.map_err(|error| trouble(false, format!("a lock's row cannot be read: {error}")))
    }

    pub(super) fn value(&self) -> Result<Value> {
        let text = serde_json::to_string(self).map_err(|error| trouble(false, error))?;
        Value::text(text).map_err(|error| trouble(false, error))
    }

    /// It as time goes here, where each beat was first seen at such a time.
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

    /// What became of a row: whatever is as it was `before`, `seen` as that row, keeps its beat.
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

    /// Whether both say the same, whenever they were written.
    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        (self.token, &self.holder, &self.line, &self.next)
            == (other.token, &other.holder, &other.line, &other.next)
    }

    /// Whether it changes often, as far as one can see who is about to change it: others wait for it, or have what it bids for.
    pub(super) fn is_contended(&self, bidder: Option<Nonce>) -> bool {
        let is_anothers = |bidder: Nonce| self.holder().is_some_and(|holder| holder != bidder);
        !self.line.is_empty() || self.next.is_some() || bidder.is_some_and(is_anothers)
    }

    /// Whether somebody holds it or wants it.
    pub(super) fn is_in_use(&self) -> bool {
        self.holder.is_some() || !self.line.is_empty() || self.next.is_some()
    }

    /// Every beat that it knows, its own version included.
    pub(super) fn beats(&self) -> impl Iterator<Item = u64> {
        let waiting = self.line.iter().chain(&self.next).map(|waiting| waiting.span.beat);
        let held = self.holder.iter().map(|held| held.span.beat);
        waiting.chain(held).chain([self.version])
    }

    /// Whose it is.
    pub(super) fn holder(&self) -> Option<Nonce> {
        self.holder.as_ref().map(|held| held.owner.nonce)
    }

    /// For whom it is kept.
    pub(super) fn next(&self) -> Option<(Nonce, u64)> {
        self.next.as_ref().map(|next| (next.nonce, next.span.beat))
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

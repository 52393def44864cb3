//! Operations on many locks: listing, raising the floor of the tokens, pruning.

use std::time::Duration;

use holdoff_ledger::machine::{self, Command, Value};

use super::stored_lock::{self, StoredLock};
use super::table::{ReadConsistency, TxOutcome};
use super::{Inner, MAX_ATTEMPTS, PREFIX, digest_of, hex_of, new_tx};
use crate::row::Row;
use crate::store::{ListQuery, Result};
use crate::{Error, LockRecord, Token, clock};

/// The number of rows in one page.
const PAGE: u32 = 500;
/// The number of locks pruned in one transaction. If one of them changes in the meantime, each is pruned separately.
const PRUNE_BATCH: usize = 30;

/// A row of the table, and its content.
struct ListedLock {
    key: machine::Key,
    value: Value,
    stored: StoredLock,
    read_at: Duration,
}

impl Inner {
    /// Lists locks. Names are digests, so it reads all rows to sort them.
    pub(super) async fn list(&self, query: &ListQuery) -> Result<Vec<LockRecord>> {
        let mut records = Vec::new();
        self.for_each_lock(|found| {
            records.extend(self.record_of(&found));
            true
        })
        .await?;
        Ok(query.select(records.into_iter()))
    }

    /// Raises the floor. Every grant expects the floor it was made on, so no grant below the new one follows.
    pub(super) async fn raise_floor(&self, floor: Token) -> Result<Token> {
        for _ in 0..MAX_ATTEMPTS {
            let (index, before, stored) = self.floor().await?;
            if stored >= floor {
                return Ok(stored);
            }
            let raise = stored_lock::replace_floor(before, floor)?;
            if self.table.submit(new_tx(index), vec![raise]).await? == TxOutcome::Committed {
                return Ok(floor);
            }
        }
        Err(super::contended())
    }

    /// Prunes idle locks. A lock that is not held is idle since its row was written, by the wall clocks of its writer
    /// and of this process. If these clocks are wrong, no holder is harmed, because the lock is not held, and the floor
    /// keeps tokens growing. A lock whose holder has vanished is idle only if this process itself has observed it
    /// unrenewed for its lease and `idle_for`.
    pub(super) async fn prune(&self, idle_for: Duration, limit: u32) -> Result<u64> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut idle = Vec::new();
        self.for_each_lock(|found| {
            if idle.len() < limit && self.is_idle(&found, idle_for) {
                idle.push(found);
            }
            idle.len() < limit
        })
        .await?;
        let mut gone = 0;
        for some in idle.chunks(PRUNE_BATCH) {
            if self.delete(some).await? {
                gone += some.len() as u64;
                continue;
            }
            for one in some.chunks(1) {
                gone += u64::from(self.delete(one).await?);
            }
        }
        Ok(gone)
    }

    fn is_idle(&self, found: &ListedLock, idle_for: Duration) -> bool {
        let row = self.row_of(found);
        if found.stored.holder().is_some() {
            return row.is_some_and(|row| row.is_idle(idle_for, found.read_at));
        }
        let written_for = clock::wall().as_secs().saturating_sub(found.stored.written_s);
        row.is_some_and(|row| row.waiting(found.read_at) == 0) && written_for >= idle_for.as_secs()
    }

    /// Deletes exactly the rows that were read, and raises the floor to at least their tokens. Returns false if one has
    /// changed.
    async fn delete(&self, idle: &[ListedLock]) -> Result<bool> {
        let (index, before, floor) = self.floor().await?;
        let highest = idle.iter().map(|found| found.stored.token).max().unwrap_or(Token::new(0));
        let mut commands = vec![stored_lock::replace_floor(before, floor.max(highest))?];
        commands.extend(idle.iter().map(|ListedLock { key, value, .. }| Command::CompareAndSet {
            key: key.clone(),
            expected: Some(value.clone()),
            new: None,
        }));
        Ok(self.table.submit(new_tx(index), commands).await? == TxOutcome::Committed)
    }

    /// Returns the last index that the read includes, and the floor as a value and decoded.
    async fn floor(&self) -> Result<(u64, Option<Value>, Token)> {
        let get = vec![Command::Get(stored_lock::floor_key()?)];
        let (index, mut values) = self.table.read(get, ReadConsistency::Newest).await?;
        let value = values.pop().flatten();
        let floor = stored_lock::read_floor(value.as_ref())?;
        Ok((index, value, floor))
    }

    /// Visits the locks one after the other, until there are no more, or `look` returns false.
    async fn for_each_lock(&self, mut look: impl FnMut(ListedLock) -> bool) -> Result<()> {
        let prefix = machine::Key::new(PREFIX).map_err(|error| Error::store(false, error))?;
        let mut after = None;
        loop {
            let list = Command::List { prefix: Some(prefix.clone()), after: after.take(), most: PAGE };
            let (_, values) = self.table.read(vec![list], ReadConsistency::Newest).await?;
            let read_at = clock::now();
            for row in values.chunks_exact(2) {
                let [Some(Value::Text(key)), Some(value)] = row else { break };
                let key = machine::Key::new(key.as_str()).map_err(|error| Error::store(false, error))?;
                after = Some(key.clone());
                // A value that another program wrote under this prefix is not a lock.
                let Ok(stored) = StoredLock::read(value) else { continue };
                if !look(ListedLock { key, value: value.clone(), stored, read_at }) {
                    return Ok(());
                }
            }
            if after.is_none() {
                return Ok(());
            }
        }
    }

    fn row_of(&self, found: &ListedLock) -> Option<Row> {
        let digest = digest_of(&found.key)?;
        // Locks without a holder or waiters need no observation.
        if !found.stored.is_in_use() {
            return Some(found.stored.row(|_| found.read_at));
        }
        Some(self.observed.lock().observe(&digest, &found.stored, found.read_at))
    }

    fn record_of(&self, found: &ListedLock) -> Option<LockRecord> {
        let row = self.row_of(found)?;
        Some(LockRecord {
            namespace: found.stored.namespace.clone(),
            key: found.stored.key.clone(),
            digest: hex_of(&found.key)?.to_owned(),
            token: row.token(),
            holder: row.holder(found.read_at),
            waiting: row.waiting(found.read_at),
        })
    }
}

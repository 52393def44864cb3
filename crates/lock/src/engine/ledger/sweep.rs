//! Operations on many locks: listing, raising the fencing epoch, pruning.

use std::time::Duration;

use holdoff_ledger::machine::{self, Command, Value};

use super::entry::Entry;
use super::table::{Fresh, Said, trouble};
use super::{Inner, PREFIX, TRIES, digest_of, ground, hex_of};
use crate::row::{Ground, Row};
use crate::store::{Listing, Result};
use crate::{LockRecord, Token, clock};

/// The number of rows in one page.
const PAGE: u32 = 500;
/// The number of locks pruned in one transaction. If one of them changes in the meantime, each is pruned separately.
const FORGOTTEN_AT_ONCE: usize = 30;

/// A row of the table, and its content.
struct Found {
    key: machine::Key,
    value: Value,
    entry: Entry,
    came: Duration,
}

impl Inner {
    /// Lists locks. Names are digests, so it reads all rows to sort them.
    pub(super) async fn list(&self, listing: &Listing) -> Result<Vec<LockRecord>> {
        let mut records = Vec::new();
        self.each(|found| {
            let Some(record) = self.record_of(&found) else { return true };
            let is_wanted = listing.namespace.as_ref().is_none_or(|namespace| record.namespace == *namespace)
                && record.key.starts_with(&listing.prefix)
                && (!listing.held || record.holder.is_some())
                && listing.after.as_ref().is_none_or(|mark| record.is_after(mark));
            if is_wanted {
                records.push(record);
            }
            true
        })
        .await?;
        records.sort_by(|one, other| {
            (&one.namespace, &one.key, &one.digest).cmp(&(&other.namespace, &other.key, &other.digest))
        });
        records.truncate(usize::try_from(listing.limit).unwrap_or(usize::MAX));
        Ok(records)
    }

    /// Raises the fencing epoch. Every grant expects the token base it was made on, so no grant of the previous epoch
    /// follows.
    pub(super) async fn raise_era(&self) -> Result<u64> {
        for _ in 0..TRIES {
            let (before, ground) = self.ground().await?;
            let era = ground.era.saturating_add(1);
            let raise = ground::becomes(before, Ground { era, ..ground })?;
            if self.submit(vec![raise]).await? == Said::Done {
                return Ok(era);
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
        self.each(|found| {
            if idle.len() < limit && self.is_idle(&found, idle_for) {
                idle.push(found);
            }
            idle.len() < limit
        })
        .await?;
        let mut gone = 0;
        for some in idle.chunks(FORGOTTEN_AT_ONCE) {
            if self.forget(some).await? {
                gone += some.len() as u64;
                continue;
            }
            for one in some.chunks(1) {
                gone += u64::from(self.forget(one).await?);
            }
        }
        Ok(gone)
    }

    fn is_idle(&self, found: &Found, idle_for: Duration) -> bool {
        let row = self.row_of(found);
        if found.entry.holder().is_some() {
            return row.is_some_and(|row| row.is_idle(idle_for, found.came));
        }
        let written_for = clock::wall_s().saturating_sub(found.entry.written_s);
        row.is_some_and(|row| row.waiting(found.came) == 0) && written_for >= idle_for.as_secs()
    }

    /// Deletes exactly the rows that were read, and raises the floor to at least their tokens. Returns false if one has
    /// changed.
    async fn forget(&self, idle: &[Found]) -> Result<bool> {
        let (before, ground) = self.ground().await?;
        let highest = idle.iter().map(|found| found.entry.token).max().unwrap_or(Token::new(0));
        let mut commands =
            vec![ground::becomes(before, Ground { floor: ground.floor.max(highest), ..ground })?];
        commands.extend(idle.iter().map(|Found { key, value, .. }| Command::CompareAndSet {
            key: key.clone(),
            expected: Some(value.clone()),
            new: None,
        }));
        Ok(self.submit(commands).await? == Said::Done)
    }

    async fn ground(&self) -> Result<(Option<Value>, Ground)> {
        let (_, mut values) = self.table.read(vec![Command::Get(ground::key()?)], Fresh::Newest).await?;
        let value = values.pop().flatten();
        let ground = ground::read(value.as_ref())?;
        Ok((value, ground))
    }

    /// Visits the locks one after the other, until there are no more, or `look` returns false.
    async fn each(&self, mut look: impl FnMut(Found) -> bool) -> Result<()> {
        let prefix = machine::Key::new(PREFIX).map_err(|error| trouble(false, error))?;
        let mut after = None;
        loop {
            let list = Command::List { prefix: Some(prefix.clone()), after: after.take(), most: PAGE };
            let (_, values) = self.table.read(vec![list], Fresh::Newest).await?;
            let came = clock::now();
            for row in values.chunks_exact(2) {
                let [Some(Value::Text(key)), Some(value)] = row else { break };
                let key = machine::Key::new(key.as_str()).map_err(|error| trouble(false, error))?;
                after = Some(key.clone());
                // A value that another program wrote under this prefix is not a lock.
                let Ok(entry) = Entry::read(value) else { continue };
                if !look(Found { key, value: value.clone(), entry, came }) {
                    return Ok(());
                }
            }
            if after.is_none() {
                return Ok(());
            }
        }
    }

    fn row_of(&self, found: &Found) -> Option<Row> {
        let digest = digest_of(&found.key)?;
        // Locks without a holder or waiters need no observation.
        if !found.entry.is_in_use() {
            return Some(found.entry.row(|_| found.came));
        }
        Some(self.observed().look(&digest, &found.entry, found.came))
    }

    fn record_of(&self, found: &Found) -> Option<LockRecord> {
        let row = self.row_of(found)?;
        Some(LockRecord {
            namespace: found.entry.namespace.clone(),
            key: found.entry.key.clone(),
            digest: hex_of(&found.key)?.to_owned(),
            token: row.token(),
            holder: row.holder(found.came),
            waiting: row.waiting(found.came),
        })
    }
}

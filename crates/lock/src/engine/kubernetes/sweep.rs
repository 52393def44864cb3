//! Operations on many locks: listing, raising the fencing epoch, pruning.

use std::time::Duration;

use super::api::Trouble;
use super::entry::{Entry, selector};
use super::{Inner, TRIES, clock, era};
use crate::store::{Listing, Result};
use crate::{LockRecord, Token};

impl Inner {
    /// Lists locks. Names are digests, so it reads all Leases to sort them.
    pub(super) async fn list(&self, listing: &Listing) -> Result<Vec<LockRecord>> {
        let asked_at = clock::now();
        let entries = self.all(&selector(listing.namespace.as_deref())).await?;
        let mut records: Vec<LockRecord> = entries
            .iter()
            .filter_map(|entry| self.record(entry, asked_at))
            .filter(|record| !listing.held || record.holder.is_some())
            .filter(|record| record.key.starts_with(&listing.prefix))
            .filter(|record| listing.after.as_ref().is_none_or(|mark| record.is_after(mark)))
            .collect();
        records.sort_by(|one, other| {
            (&one.namespace, &one.key, &one.digest).cmp(&(&other.namespace, &other.key, &other.digest))
        });
        records.truncate(usize::try_from(listing.limit).unwrap_or(usize::MAX));
        Ok(records)
    }

    /// Raises the fencing epoch in the record, then in every lock. From then on, a grant made from an earlier version
    /// of a lock is rejected. A lock that is created later reads the epoch from the record.
    pub(super) async fn raise_era(&self) -> Result<u64> {
        let era = era::raise_era(&self.leases).await?;
        let floor = Token::new(Token::first_of(era).get() - 1);
        // Not by labels: another client may have removed them.
        for entry in self.all("").await?.into_iter().filter(|entry| entry.digest().is_some()) {
            self.raise_floor(entry, floor).await?;
        }
        Ok(era)
    }

    /// Raises the floor of a lock. It also writes a lock without a token, so that a pending grant in the previous epoch
    /// is rejected.
    async fn raise_floor(&self, mut entry: Entry, floor: Token) -> Result<()> {
        let name = entry.0.metadata.name.clone().unwrap_or_default();
        for _ in 0..TRIES {
            if entry.highest().is_some_and(|highest| highest >= floor) {
                return Ok(());
            }
            entry.raise_floor(floor);
            match self.leases.put(&entry).await {
                Ok(_) => return Ok(()),
                Err(Trouble::Conflict) => {}
                Err(trouble) => return Err(trouble.into()),
            }
            match self.leases.get(&name).await? {
                Some(newer) => entry = newer,
                None => return Ok(()),
            }
        }
        Err(Trouble::Conflict.into())
    }

    /// Prunes idle locks. A lock that is not held is idle since its Lease was last written, by the wall clocks of its
    /// writer and of this process. If these clocks are wrong, no holder is harmed, because the lock is not held, and
    /// the floor keeps tokens growing. A lock whose holder has vanished is idle only if this process itself has
    /// observed it unrenewed for its lease and `idle_for`.
    pub(super) async fn prune(&self, idle_for: Duration, limit: u32) -> Result<u64> {
        let asked_at = clock::now();
        let entries = self.all(&selector(None)).await?;
        let is_idle = |entry: &Entry| {
            if let Some(age) = self.look(entry, asked_at)
                && age.unrenewed_for < idle_for.saturating_add(entry.lease())
            {
                return false;
            }
            let idle = entry.changed_at().map(|then| (self.wall)().duration_since(then));
            idle.and_then(|idle| Duration::try_from(idle).ok()).is_some_and(|idle| idle >= idle_for)
        };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let idle: Vec<Entry> = entries.into_iter().filter(is_idle).take(limit).collect();
        let Some(highest) = idle.iter().map(Entry::highest).max() else { return Ok(0) };
        if let Some(highest) = highest {
            era::raise_floor(&self.leases, highest).await?;
        }
        let mut gone = 0;
        for entry in &idle {
            // Delete exactly the observed version: a client that acquired the lock in the meantime keeps it.
            gone += u64::from(self.leases.delete(entry).await?);
        }
        Ok(gone)
    }

    /// Returns all Leases with these labels. If the list takes so long that its start is no longer available, it
    /// restarts.
    async fn all(&self, selector: &str) -> Result<Vec<Entry>> {
        for _ in 0..TRIES {
            match self.leases.list(selector).await {
                Err(Trouble::Gone) => {}
                entries => return Ok(entries?),
            }
        }
        Err(Trouble::Gone.into())
    }
}

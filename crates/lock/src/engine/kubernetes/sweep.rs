//! What is done to many locks at once: listing, raising the era, pruning.

use std::time::Duration;

use super::api::Trouble;
use super::entry::{Entry, selector};
use super::{Inner, TRIES, clock, era};
use crate::store::{Listing, Result};
use crate::{LockRecord, Token};

impl Inner {
    /// Names are digests, so that all must be read to be put in order.
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

    /// Raises the era in the record, then in every lock: a grant that was made from an earlier version of a lock is
    /// refused from then on. A lock that comes later finds the era in the record.
    pub(super) async fn raise_era(&self) -> Result<u64> {
        let era = era::raise_era(&self.leases).await?;
        let floor = Token::new(Token::first_of(era).get() - 1);
        // Not by labels: a foreign hand may have removed them.
        for entry in self.all("").await?.into_iter().filter(|entry| entry.digest().is_some()) {
            self.raise_floor(entry, floor).await?;
        }
        Ok(era)
    }

    /// Also a lock without a token is written, so that whoever is about to take it in the era before is refused.
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

    /// A lock that nobody holds is idle since its Lease was last written, by the wall clocks of whoever wrote it and of
    /// this process: if they are wrong, nobody is hurt, for nobody holds it, and the floor keeps tokens growing. One
    /// whose holder has vanished is idle only if this process itself has seen it unrenewed for its lease and so long.
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
            // Exactly the version that was looked at: whoever has taken it meanwhile keeps it.
            gone += u64::from(self.leases.delete(entry).await?);
        }
        Ok(gone)
    }

    /// All Leases with these labels. A list that takes so long that its beginning is forgotten begins again.
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

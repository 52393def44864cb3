//! Operations on many locks (listing, raising the floor of the tokens, pruning), and the record of that floor.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};

use super::api::{Leases, RequestError, RequestResult};
use super::lease_object::{LeaseObject, SELECTOR, selector};
use super::{Inner, MAX_ATTEMPTS};
use crate::store::{ListQuery, Result};
use crate::{LockRecord, Token, clock};

/// The name of the Lease that records the floor of the namespace.
const RECORD: &str = "holdoff-record";

impl Inner {
    /// Lists locks. Names are digests, so it reads all Leases to sort them.
    pub(super) async fn list(&self, query: &ListQuery) -> Result<Vec<LockRecord>> {
        let requested_at = clock::now();
        let objects = self.all(&selector(query.namespace.as_deref())).await?;
        Ok(query.select(objects.iter().filter_map(|object| self.record(object, requested_at))))
    }

    /// Raises the floor in the record, then in every lock. From then on, a grant made from an earlier version of a lock
    /// is rejected. A lock that is created later reads the floor from the record.
    pub(super) async fn raise_floor(&self, floor: Token) -> Result<Token> {
        let floor = raise_recorded_floor(&self.leases, floor).await?;
        // Not by labels: another client may have removed them.
        for object in self.all("").await?.into_iter().filter(|object| object.digest().is_some()) {
            self.raise_floor_of(object, floor).await?;
        }
        Ok(floor)
    }

    /// Raises the floor of a lock. It also writes a lock without a token, so that a pending grant below the floor is
    /// rejected.
    async fn raise_floor_of(&self, mut object: LeaseObject, floor: Token) -> Result<()> {
        let name = object.0.metadata.name.clone().unwrap_or_default();
        for _ in 0..MAX_ATTEMPTS {
            if object.highest().is_some_and(|highest| highest >= floor) {
                return Ok(());
            }
            object.raise_floor(floor);
            match self.leases.put(&object).await {
                Ok(_) => return Ok(()),
                Err(RequestError::Conflict) => {}
                Err(error) => return Err(error.into()),
            }
            match self.leases.get(&name).await? {
                Some(newer) => object = newer,
                None => return Ok(()),
            }
        }
        Err(RequestError::Conflict.into())
    }

    /// Prunes idle locks. A lock that is not held is idle since its Lease was last written, by the wall clocks of its
    /// writer and of this process. If these clocks are wrong, no holder is harmed, because the lock is not held, and
    /// the floor keeps tokens growing. A lock whose holder has vanished is idle only if this process itself has
    /// observed it unrenewed for its lease and `idle_for`.
    pub(super) async fn prune(&self, idle_for: Duration, limit: u32) -> Result<u64> {
        let requested_at = clock::now();
        let objects = self.all(&selector(None)).await?;
        let is_idle = |object: &LeaseObject| {
            if let Some(age) = self.observe(object, requested_at)
                && age.unrenewed_for < idle_for.saturating_add(object.lease())
            {
                return false;
            }
            let idle = object.changed_at().map(|then| (self.wall)().duration_since(then));
            idle.and_then(|idle| Duration::try_from(idle).ok()).is_some_and(|idle| idle >= idle_for)
        };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let idle: Vec<LeaseObject> = objects.into_iter().filter(is_idle).take(limit).collect();
        let Some(highest) = idle.iter().map(LeaseObject::highest).max() else { return Ok(0) };
        if let Some(highest) = highest {
            raise_recorded_floor(&self.leases, highest).await?;
        }
        let mut gone = 0;
        for object in &idle {
            // Delete exactly the observed version: a client that acquired the lock in the meantime keeps it.
            gone += u64::from(self.leases.delete(object).await?);
        }
        Ok(gone)
    }

    /// Returns all Leases with these labels. If the list takes so long that its start is no longer available, it
    /// restarts.
    async fn all(&self, selector: &str) -> Result<Vec<LeaseObject>> {
        for _ in 0..MAX_ATTEMPTS {
            match self.leases.list(selector).await {
                Err(RequestError::Gone) => {}
                objects => return Ok(objects?),
            }
        }
        Err(RequestError::Gone.into())
    }
}

/// Returns the recorded floor, and creates the record if there is none.
pub(super) async fn read_floor(leases: &Leases) -> Result<Token> {
    raise_recorded_floor(leases, Token::new(0)).await
}

/// Raises the recorded floor to at least this one. Returns the floor from now on.
async fn raise_recorded_floor(leases: &Leases, floor: Token) -> Result<Token> {
    for _ in 0..MAX_ATTEMPTS {
        let Some(mut record) = leases.get(RECORD).await? else {
            create_record(leases).await?;
            continue;
        };
        let recorded = record.floor().unwrap_or(Token::new(0));
        if recorded >= floor {
            return Ok(recorded);
        }
        record.raise_floor(floor);
        match leases.put(&record).await {
            Ok(_) => return Ok(floor),
            Err(RequestError::Conflict) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(RequestError::Conflict.into())
}

/// Creates the record. If another client deleted it, the remaining locks have its floor, or higher tokens.
async fn create_record(leases: &Leases) -> RequestResult<()> {
    let known = leases.list(SELECTOR).await?;
    let floor = known.iter().filter_map(LeaseObject::highest).max().unwrap_or(Token::new(0));
    let mut lease = Lease { spec: Some(LeaseSpec::default()), ..Lease::default() };
    lease.metadata.name = Some(RECORD.to_owned());
    lease.metadata.labels = Some(BTreeMap::from(
        [("app.kubernetes.io/managed-by", "holdoff"), ("holdoff/kind", "record")]
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
    ));
    let mut record = LeaseObject(lease);
    record.raise_floor(floor);
    match leases.create(&record).await {
        Ok(_) | Err(RequestError::Conflict) => Ok(()),
        Err(error) => Err(error),
    }
}

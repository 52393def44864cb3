//! Operations on many locks (listing, raising the fencing epoch, pruning), and the record of the token base.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};

use super::api::{Leases, RequestError, RequestResult};
use super::lease_object::{LeaseObject, SELECTOR, selector};
use super::{Inner, MAX_ATTEMPTS};
use crate::row::TokenBase;
use crate::store::{ListQuery, Result};
use crate::{LockRecord, Token, clock};

/// The name of the Lease that records the token base of the namespace.
const RECORD: &str = "holdoff-record";
const EPOCH: &str = "holdoff/epoch";
const FLOOR: &str = "holdoff/floor";

impl Inner {
    /// Lists locks. Names are digests, so it reads all Leases to sort them.
    pub(super) async fn list(&self, query: &ListQuery) -> Result<Vec<LockRecord>> {
        let requested_at = clock::now();
        let objects = self.all(&selector(query.namespace.as_deref())).await?;
        Ok(query.select(objects.iter().filter_map(|object| self.record(object, requested_at))))
    }

    /// Raises the fencing epoch in the record, then in every lock. From then on, a grant made from an earlier version
    /// of a lock is rejected. A lock that is created later reads the epoch from the record.
    pub(super) async fn bump_epoch(&self) -> Result<u64> {
        let epoch = bump_recorded_epoch(&self.leases).await?;
        let floor = Token::new(Token::first_of(epoch).get() - 1);
        // Not by labels: another client may have removed them.
        for object in self.all("").await?.into_iter().filter(|object| object.digest().is_some()) {
            self.raise_floor(object, floor).await?;
        }
        Ok(epoch)
    }

    /// Raises the floor of a lock. It also writes a lock without a token, so that a pending grant in the previous epoch
    /// is rejected.
    async fn raise_floor(&self, mut object: LeaseObject, floor: Token) -> Result<()> {
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

/// Returns the recorded token base, and creates the record if there is none.
pub(super) async fn read_token_base(leases: &Leases) -> Result<TokenBase> {
    Ok(change_token_base(leases, |base| base).await?)
}

async fn raise_recorded_floor(leases: &Leases, floor: Token) -> Result<()> {
    change_token_base(leases, |base| TokenBase { floor: base.floor.max(floor), ..base }).await?;
    Ok(())
}

/// Raises the fencing epoch, and returns the new one.
async fn bump_recorded_epoch(leases: &Leases) -> Result<u64> {
    let raised =
        change_token_base(leases, |base| TokenBase { epoch: base.epoch.saturating_add(1), ..base }).await?;
    Ok(raised.epoch)
}

async fn change_token_base(
    leases: &Leases,
    change: impl Fn(TokenBase) -> TokenBase,
) -> RequestResult<TokenBase> {
    for _ in 0..MAX_ATTEMPTS {
        let Some(mut found) = leases.get(RECORD).await? else {
            create_record(leases).await?;
            continue;
        };
        let base = parse_record(&found);
        let changed = change(base);
        if changed == base {
            return Ok(base);
        }
        let annotations = found.0.metadata.annotations.get_or_insert_default();
        annotations.extend(to_annotations(changed));
        match leases.put(&found).await {
            Ok(_) => return Ok(changed),
            Err(RequestError::Conflict) => {}
            Err(error) => return Err(error),
        }
    }
    Err(RequestError::Conflict)
}

/// Creates the record. If another client deleted it, the remaining locks still record the fencing epoch.
async fn create_record(leases: &Leases) -> RequestResult<()> {
    let known = leases.list(SELECTOR).await?;
    let highest = known.iter().filter_map(LeaseObject::highest).max();
    let epoch = highest.map_or(0, Token::epoch);
    let mut lease = Lease { spec: Some(LeaseSpec::default()), ..Lease::default() };
    lease.metadata.name = Some(RECORD.to_owned());
    lease.metadata.labels = Some(BTreeMap::from(
        [("app.kubernetes.io/managed-by", "holdoff"), ("holdoff/kind", "record")]
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
    ));
    lease.metadata.annotations =
        Some(to_annotations(TokenBase { epoch, floor: Token::new(0) }).into_iter().collect());
    match leases.create(&LeaseObject(lease)).await {
        Ok(_) | Err(RequestError::Conflict) => Ok(()),
        Err(error) => Err(error),
    }
}

fn parse_record(object: &LeaseObject) -> TokenBase {
    let annotations = object.0.metadata.annotations.as_ref();
    let number = |name: &str| {
        annotations
            .and_then(|annotations| annotations.get(name))
            .and_then(|number| number.parse().ok())
            .unwrap_or_default()
    };
    TokenBase { epoch: number(EPOCH), floor: Token::new(number(FLOOR)) }
}

fn to_annotations(base: TokenBase) -> [(String, String); 2] {
    [(EPOCH.to_owned(), base.epoch.to_string()), (FLOOR.to_owned(), base.floor.to_string())]
}

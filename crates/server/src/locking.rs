//! The lock store of this daemon: the store of its work, or one of its ledgers.

use std::sync::Arc;

use holdoff_lock::{Locks, Settings};
use holdoff_work::Work;

use crate::claims::Claims;
use crate::ledgers::{Ledgers, why_stopped};
use crate::problem::Problem;
use crate::{Error, StoreUrl};

/// The locks of this daemon. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Locking {
    store: Locks,
    ledger: Option<LockLedger>,
    claims: Option<Claims>,
}

/// The ledger that keeps the locks.
#[derive(Clone, Debug)]
struct LockLedger {
    ledgers: Arc<Ledgers>,
    name: Arc<str>,
}

impl Locking {
    /// Opens the given locks, else those in the ledger that the settings name, else those in the store of the work.
    pub(crate) async fn open(
        store: &StoreUrl,
        work: &Work,
        given: Option<Locks>,
        settings: Settings,
        ledgers: Option<&Arc<Ledgers>>,
    ) -> Result<Self, Error> {
        let lock_error = |source| Error::Locks { store: store.clone(), source };
        let (locks, ledger) = match (given, settings.ledger()) {
            (Some(locks), _) => (locks, None),
            (None, Some(name)) => {
                let kept = LockLedger::find(name, ledgers)?;
                (kept.locks(), Some(kept))
            }
            (None, None) => (open(store.as_str()).await.map_err(lock_error)?, None),
        };
        let locks = locks.with_settings(settings).map_err(lock_error)?;
        // Daemons on one shared store need no claims.
        let separate = ledger.clone().filter(|_| store.as_str().starts_with("sqlite:"));
        let claims =
            separate.map(|LockLedger { ledgers, name }| Claims::new(ledgers, name, &locks, work.clone()));
        Ok(Self { store: locks, ledger, claims: claims.transpose().map_err(lock_error)? })
    }

    /// Returns the locks if they are available. Locks in a ledger are available from the time this node has joined it
    /// until the node stops.
    pub(crate) async fn locks(&self) -> Result<&Locks, Problem> {
        if let Some(LockLedger { ledgers, name }) = &self.ledger {
            let node = ledgers.node(name)?;
            if let Some(why) = why_stopped(&node).await {
                return Err(why.into());
            }
        }
        Ok(&self.store)
    }

    /// Returns the claims of signals, if daemons with a store each share a ledger.
    pub(crate) fn claims(&self) -> Option<&Claims> {
        self.claims.as_ref()
    }

    /// Returns the defaults of acquisitions.
    pub(crate) fn settings(&self) -> &Settings {
        self.store.settings()
    }

    /// Returns the name of the ledger that keeps the locks, if one does.
    pub(crate) fn ledger(&self) -> Option<&str> {
        self.ledger.as_ref().map(|kept| &*kept.name)
    }
}

impl LockLedger {
    /// Finds the ledger. This node may not have joined it yet.
    fn find(name: &str, ledgers: Option<&Arc<Ledgers>>) -> Result<Self, Error> {
        let has = |ledgers: &&Arc<Ledgers>| ledgers.names().iter().any(|(known, _)| known == name);
        let ledgers = ledgers.filter(has).ok_or_else(|| Error::NoLedgerForLocks(name.to_owned()))?;
        Ok(Self { ledgers: Arc::clone(ledgers), name: name.into() })
    }

    fn locks(&self) -> Locks {
        let Self { ledgers, name } = self.clone();
        Locks::ledger_with_lookup(move || ledgers.find(&name).ok().flatten())
    }
}

/// Opens the locks in the store of the work. Work in memory has no address that another client could open.
async fn open(url: &str) -> Result<Locks, holdoff_lock::Error> {
    if url.starts_with("sqlite::memory:") { Ok(Locks::memory()) } else { Locks::open(url).await }
}

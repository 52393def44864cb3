//! The lock store of this daemon: the store of its work, or one of its ledgers.

use std::sync::Arc;

use holdoff_lock::{Locks, Settings};
use holdoff_work::Work;

use crate::claims::Claims;
use crate::ledgers::{Ledgers, why_stopped};
use crate::problem::Problem;
use crate::{Error, Place};

/// The locks of this daemon. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Locking {
    locks: Locks,
    ledger: Option<Kept>,
    claims: Option<Claims>,
}

/// The ledger that keeps the locks.
#[derive(Clone, Debug)]
struct Kept {
    ledgers: Arc<Ledgers>,
    name: Arc<str>,
}

impl Locking {
    /// Opens the given locks, else those in the ledger that the settings name, else those in the store of the work.
    pub(crate) async fn open(
        place: &Place,
        work: &Work,
        given: Option<Locks>,
        settings: Settings,
        ledgers: Option<&Arc<Ledgers>>,
    ) -> Result<Self, Error> {
        let refused = |source| Error::Locks { place: place.clone(), source };
        let (locks, ledger) = match (given, settings.ledger()) {
            (Some(locks), _) => (locks, None),
            (None, Some(name)) => {
                let kept = Kept::find(name, ledgers)?;
                (kept.locks(), Some(kept))
            }
            (None, None) => (open(place.url()).await.map_err(refused)?, None),
        };
        let locks = locks.with_settings(settings).map_err(refused)?;
        // Daemons on one shared store need no claims.
        let apart = ledger.clone().filter(|_| place.url().starts_with("sqlite:"));
        let claims = apart.map(|Kept { ledgers, name }| Claims::new(ledgers, name, &locks, work.clone()));
        Ok(Self { locks, ledger, claims: claims.transpose().map_err(refused)? })
    }

    /// Returns the locks if they are available. Locks in a ledger are available from the time this node has joined it
    /// until the node stops.
    pub(crate) async fn here(&self) -> Result<&Locks, Problem> {
        if let Some(Kept { ledgers, name }) = &self.ledger {
            let node = ledgers.node(name)?;
            if let Some(why) = why_stopped(&node).await {
                return Err(why.into());
            }
        }
        Ok(&self.locks)
    }

    /// Returns the claims of signals, if daemons with a store each share a ledger.
    pub(crate) fn claims(&self) -> Option<&Claims> {
        self.claims.as_ref()
    }

    /// Returns the defaults of acquisitions.
    pub(crate) fn settings(&self) -> &Settings {
        self.locks.settings()
    }

    /// Returns the name of the ledger that keeps the locks, if one does.
    pub(crate) fn ledger(&self) -> Option<&str> {
        self.ledger.as_ref().map(|kept| &*kept.name)
    }
}

impl Kept {
    /// Finds the ledger. This node may not have joined it yet.
    fn find(name: &str, ledgers: Option<&Arc<Ledgers>>) -> Result<Self, Error> {
        let has = |ledgers: &&Arc<Ledgers>| ledgers.names().iter().any(|(known, _)| known == name);
        let ledgers = ledgers.filter(has).ok_or_else(|| Error::NoLedgerForLocks(name.to_owned()))?;
        Ok(Self { ledgers: Arc::clone(ledgers), name: name.into() })
    }

    fn locks(&self) -> Locks {
        let Self { ledgers, name } = self.clone();
        Locks::ledger_found_by(move || ledgers.find(&name).ok().flatten())
    }
}

/// Opens the locks in the store of the work. Work in memory has no address that another client could open.
async fn open(url: &str) -> Result<Locks, holdoff_lock::Error> {
    if url.starts_with("sqlite::memory:") { Ok(Locks::memory()) } else { Locks::open(url).await }
}

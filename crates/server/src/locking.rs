//! Where this daemon's locks are: where its work is, or in one of its ledgers.

use std::sync::Arc;

use holdoff_lock::{Locks, Settings};
use holdoff_work::Work;

use crate::claims::Claims;
use crate::ledgers::{Ledgers, why_stopped};
use crate::problem::Problem;
use crate::{Error, Place};

/// This daemon's locks. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Locking {
    locks: Locks,
    ledger: Option<Kept>,
    claims: Option<Claims>,
}

/// The ledger that keeps them.
#[derive(Clone, Debug)]
struct Kept {
    ledgers: Arc<Ledgers>,
    name: Arc<str>,
}

impl Locking {
    /// The locks that are given, those in the ledger that the settings name, or those where the work is.
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
        // One store that has all work needs no claims.
        let apart = ledger.clone().filter(|_| place.url().starts_with("sqlite:"));
        let claims = apart.map(|Kept { ledgers, name }| Claims::new(ledgers, name, &locks, work.clone()));
        Ok(Self { locks, ledger, claims: claims.transpose().map_err(refused)? })
    }

    /// The locks, if they can be had: not before this node has joined the ledger that keeps them, nor after it has stopped.
    pub(crate) async fn here(&self) -> Result<&Locks, Problem> {
        if let Some(Kept { ledgers, name }) = &self.ledger {
            let node = ledgers.node(name)?;
            if let Some(why) = why_stopped(&node).await {
                return Err(why.into());
            }
        }
        Ok(&self.locks)
    }

    /// Which daemon has the task for which signal, where daemons with a store each share a ledger.
    pub(crate) fn claims(&self) -> Option<&Claims> {
        self.claims.as_ref()
    }

    /// What they are like unless an acquisition says otherwise.
    pub(crate) fn settings(&self) -> &Settings {
        self.locks.settings()
    }

    /// The ledger that keeps them, if one does.
    pub(crate) fn ledger(&self) -> Option<&str> {
        self.ledger.as_ref().map(|kept| &*kept.name)
    }
}

impl Kept {
    /// One that is there, perhaps not joined yet.
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

/// Locks where the work is. Work in memory has no address that anybody else could open.
async fn open(url: &str) -> Result<Locks, holdoff_lock::Error> {
    if url.starts_with("sqlite::memory:") { Ok(Locks::memory()) } else { Locks::open(url).await }
}

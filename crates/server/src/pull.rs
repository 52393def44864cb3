//! Workers that pull steps over HTTP: their names, and the limit on waiting requests.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use holdoff_work::{Claimer, Work};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::problem::{Kind, Problem, spread};

/// The maximum number of requests that wait for steps.
const MOST_WAITING: usize = 512;
/// The maximum number of cached names. A worker whose name was evicted is registered again.
const MOST_NAMES: usize = 1000;
/// The worker name of reports. The claim itself identifies the worker that had the step.
const REPORTER: &str = "api";

/// Workers that pull steps over HTTP.
#[derive(Debug)]
pub(crate) struct Pull {
    work: Work,
    claimers: Mutex<HashMap<String, Claimer>>,
    room: Semaphore,
}

impl Pull {
    pub(crate) fn new(work: Work) -> Self {
        Self { work, claimers: Mutex::default(), room: Semaphore::new(MOST_WAITING) }
    }

    /// Returns the claimer of a worker name. The store is told of a name once, as long as the name is cached here.
    pub(crate) async fn claimer(&self, name: &str) -> Result<Claimer, Problem> {
        if let Some(claimer) = self.claimers.lock().unwrap_or_else(PoisonError::into_inner).get(name) {
            return Ok(claimer.clone());
        }
        let claimer = self.work.claimer(name, &[], &[]).await?;
        let mut claimers = self.claimers.lock().unwrap_or_else(PoisonError::into_inner);
        if claimers.len() >= MOST_NAMES {
            claimers.clear();
        }
        claimers.insert(name.to_owned(), claimer.clone());
        Ok(claimer)
    }

    /// Returns the claimer for reports.
    pub(crate) async fn reporter(&self) -> Result<Claimer, Problem> {
        self.claimer(REPORTER).await
    }

    /// Acquires a permit to wait for steps.
    pub(crate) fn place(&self) -> Result<SemaphorePermit<'_>, Problem> {
        self.room.try_acquire().map_err(|_| {
            let detail = format!("{MOST_WAITING} requests wait for steps in this daemon already");
            Problem::new(Kind::TooManyWaiters, detail).retry_after(spread())
        })
    }
}

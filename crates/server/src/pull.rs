//! Workers that pull: who they are, and how many wait.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use holdoff_work::{Claimer, Work};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::problem::{Kind, Problem, spread};

/// The most requests that wait for steps at once.
const MOST_WAITING: usize = 512;
/// The most names that are remembered; a worker whose name is forgotten is taken down anew.
const MOST_NAMES: usize = 1000;
/// Under which name reports are made; who had the step is known.
const REPORTER: &str = "api";

/// Workers that pull.
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

    /// A worker by name. The store is told of each name once, as long as it is remembered here.
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

    /// Somebody to report through.
    pub(crate) async fn reporter(&self) -> Result<Claimer, Problem> {
        self.claimer(REPORTER).await
    }

    /// A place to wait in.
    pub(crate) fn place(&self) -> Result<SemaphorePermit<'_>, Problem> {
        self.room.try_acquire().map_err(|_| {
            let detail = format!("{MOST_WAITING} requests wait for steps in this daemon already");
            Problem::new(Kind::TooManyWaiters, detail).retry_after(spread())
        })
    }
}

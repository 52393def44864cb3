//! The queue of this process's contenders for a lock: only the head of the queue asks the store.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{Error, Key};

type Digest = [u8; 32];
type Turn = Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send + Sync>>;

/// The queues, by the digest of the lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lines(Arc<Mutex<HashMap<Digest, Line>>>);

#[derive(Debug)]
struct Line {
    turn: Arc<Semaphore>,
    lookout: Arc<Semaphore>,
    /// The number of members, including the head.
    members: usize,
}

/// A place in a queue. Dropping it leaves the queue; when the last member leaves, the queue is removed.
pub(crate) struct Place {
    lines: Lines,
    digest: Digest,
    state: State,
    lookout: Arc<Semaphore>,
    /// The permit to probe while it waits.
    watch: Option<OwnedSemaphorePermit>,
}

enum State {
    Waiting(Turn),
    Mine { _permit: Option<OwnedSemaphorePermit> },
}

impl Lines {
    /// Joins the end of the queue, unless the queue is full.
    pub(crate) fn join(&self, key: &Key, most_waiters: usize) -> Result<Place, Error> {
        let digest = *key.digest();
        let (turn, lookout) = {
            let mut map = self.map();
            let one = || Arc::new(Semaphore::new(1));
            let fresh = || Line { turn: one(), lookout: one(), members: 0 };
            let line = map.entry(digest).or_insert_with(fresh);
            if line.members > most_waiters {
                return Err(Error::TooManyWaiters { limit: most_waiters });
            }
            line.members += 1;
            (Arc::clone(&line.turn), Arc::clone(&line.lookout))
        };
        let state = match Arc::clone(&turn).try_acquire_owned() {
            Ok(permit) => State::Mine { _permit: Some(permit) },
            Err(_) => State::Waiting(Box::pin(async move { turn.acquire_owned().await.ok() })),
        };
        Ok(Place { lines: self.clone(), digest, state, lookout, watch: None })
    }

    /// Returns the number of members of this key's queue, including the head.
    pub(crate) fn members(&self, key: &Key) -> usize {
        self.map().get(key.digest()).map_or(0, |line| line.members)
    }

    fn map(&self) -> MutexGuard<'_, HashMap<Digest, Line>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    pub(crate) fn is_my_turn(&self) -> bool {
        matches!(self.state, State::Mine { .. })
    }

    /// Returns whether this member probes while it waits. The head does, and one of the waiting members does, because
    /// the head may hold the lock for long. The others need not.
    pub(crate) fn looks_out(&mut self) -> bool {
        if !self.is_my_turn() && self.watch.is_none() {
            self.watch = Arc::clone(&self.lookout).try_acquire_owned().ok();
        }
        self.is_my_turn() || self.watch.is_some()
    }

    /// Waits until this member is the head. Cancelling the wait keeps the place.
    pub(crate) async fn turn(&mut self) {
        if let State::Waiting(turn) = &mut self.state {
            // The semaphore is never closed. If it were, no member would be left waiting.
            self.state = State::Mine { _permit: turn.as_mut().await };
            self.watch = None;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut map = self.lines.map();
        if let Some(line) = map.get_mut(&self.digest) {
            line.members -= 1;
            if line.members == 0 {
                map.remove(&self.digest);
            }
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("is_my_turn", &self.is_my_turn()).finish_non_exhaustive()
    }
}

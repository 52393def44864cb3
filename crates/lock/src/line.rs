//! Those of this process who want the same lock: they stand in line, and only the first asks the store.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{Error, Key};

type Digest = [u8; 32];
type Turn = Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send + Sync>>;

/// The lines, by the lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lines(Arc<Mutex<HashMap<Digest, Line>>>);

#[derive(Debug)]
struct Line {
    turn: Arc<Semaphore>,
    lookout: Arc<Semaphore>,
    /// The one whose turn it is included.
    members: usize,
}

/// A place in a line. Dropping it leaves the line; when the last one leaves, nothing is kept of it.
pub(crate) struct Place {
    lines: Lines,
    digest: Digest,
    state: State,
    lookout: Arc<Semaphore>,
    /// That this one looks around while it waits.
    watch: Option<OwnedSemaphorePermit>,
}

enum State {
    Waiting(Turn),
    Mine { _permit: Option<OwnedSemaphorePermit> },
}

impl Lines {
    /// Takes the last place, unless the line is too long.
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

    /// How many stand in line for this key, the one whose turn it is included.
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

    /// Whether this one is to look around: the one whose turn it is, and one of those who wait, for the first may keep
    /// the lock for long. The others need not look too.
    pub(crate) fn looks_out(&mut self) -> bool {
        if !self.is_my_turn() && self.watch.is_none() {
            self.watch = Arc::clone(&self.lookout).try_acquire_owned().ok();
        }
        self.is_my_turn() || self.watch.is_some()
    }

    /// Waits for its turn. Giving up this wait does not give up the place.
    pub(crate) async fn turn(&mut self) {
        if let State::Waiting(turn) = &mut self.state {
            // Nobody closes the semaphore; were it closed, nobody would be kept waiting.
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

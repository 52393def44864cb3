//! Contention for one lock: each contender holds it for a moment, releases it, and requests it again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use holdoff_lock::{Guard, Locks};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::open;
use crate::measure::now;

const KEY: &str = "the one";
/// The time for which each contender holds the lock.
pub(super) const HOLD: Duration = Duration::from_millis(50);
const POLL_EVERY: Duration = Duration::from_millis(100);
/// Exceeds the duration of any hand-off: contenders without progress are an error.
const PATIENCE: Duration = Duration::from_secs(60);

/// The way in which a contender acquires the lock.
#[derive(Clone, Copy)]
pub(super) enum Way {
    /// With `Locks::acquire`, which waits for the lock.
    Wait,
    /// With the same statement, repeated at a fixed interval.
    Poll,
}

impl Way {
    async fn acquire(self, locks: &Locks) -> Result<Guard, String> {
        match self {
            Self::Wait => locks.acquire(KEY).await.map_err(|error| error.to_string()),
            Self::Poll => loop {
                if let Some(guard) = locks.try_acquire(KEY).await.map_err(|error| error.to_string())? {
                    break Ok(guard);
                }
                tokio::time::sleep(POLL_EVERY).await;
            },
        }
    }
}

/// Running contenders, until this is dropped.
pub(super) struct Crowd {
    hand_offs: mpsc::UnboundedReceiver<Result<Duration, String>>,
    /// Dropping the set stops the contenders.
    _contenders: JoinSet<()>,
}

impl Crowd {
    /// Starts this many waiters and one holder. Returns when every contender could have held the lock once.
    pub(super) async fn gather(url: &str, waiting: usize, way: Way) -> Result<Self, String> {
        let (tell, hand_offs) = mpsc::unbounded_channel();
        let released = Arc::new(Mutex::new(None));
        let first = open(url).await?;
        let mut all = vec![first.clone()];
        for _ in 0..waiting {
            // A store in memory is shared by clones only, which queue in the process.
            all.push(if url == "memory:" { first.clone() } else { open(url).await? });
        }
        let mut contenders = JoinSet::new();
        for locks in all {
            contenders.spawn(contend(locks, way, Arc::clone(&released), tell.clone()));
        }
        let mut crowd = Self { hand_offs, _contenders: contenders };
        crowd.watch(waiting + 1).await?;
        Ok(crowd)
    }

    /// Returns the durations of the next hand-offs, each from the start of a release to the next guard.
    pub(super) async fn watch(&mut self, hand_offs: usize) -> Result<Vec<Duration>, String> {
        let mut seen = Vec::with_capacity(hand_offs);
        while seen.len() < hand_offs {
            let next = tokio::time::timeout(PATIENCE, self.hand_offs.recv()).await;
            let next = next.map_err(|_| "nobody gets the lock any more")?;
            seen.push(next.ok_or("everybody has left")??);
        }
        Ok(seen)
    }
}

async fn contend(
    locks: Locks,
    way: Way,
    released: Arc<Mutex<Option<Instant>>>,
    tell: mpsc::UnboundedSender<Result<Duration, String>>,
) {
    let released = || released.lock().unwrap_or_else(PoisonError::into_inner);
    // Polling contenders start spread over the interval.
    tokio::time::sleep(POLL_EVERY.mul_f64(fastrand::Rng::new().f64())).await;
    loop {
        let guard = match way.acquire(&locks).await {
            Ok(guard) => guard,
            Err(why) => break drop(tell.send(Err(why))),
        };
        if let Some(released) = released().take()
            && tell.send(Ok(now().duration_since(released))).is_err()
        {
            break;
        }
        tokio::time::sleep(HOLD).await;
        released().replace(now());
        if let Err(error) = guard.release().await {
            break drop(tell.send(Err(error.to_string())));
        }
        // A polling contender would acquire the lock again before any other contender polls.
        if matches!(way, Way::Poll) {
            tokio::time::sleep(POLL_EVERY).await;
        }
    }
}

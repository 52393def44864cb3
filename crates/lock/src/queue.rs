//! The queue of this process's contenders for a lock: only the head of the queue asks the store.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{Error, LockKey};

type Digest = [u8; 32];
/// Completes when the member is the head of the queue.
type HeadPermit = Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send + Sync>>;

/// The queues, by the digest of the lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct LocalQueues(Arc<Mutex<HashMap<Digest, LocalQueue>>>);

#[derive(Debug)]
struct LocalQueue {
    /// The one permit is held by the head.
    head_permit: Arc<Semaphore>,
    /// The one permit is held by the waiting member that probes.
    probe_permits: Arc<Semaphore>,
    /// The number of members, including the head.
    members: usize,
}

/// A position in a queue. Dropping it leaves the queue; when the last member leaves, the queue is removed.
pub(crate) struct QueuePosition {
    queues: LocalQueues,
    digest: Digest,
    state: PositionState,
    probe_permits: Arc<Semaphore>,
    /// The permit to probe while it waits.
    probe_permit: Option<OwnedSemaphorePermit>,
}

enum PositionState {
    Waiting(HeadPermit),
    Head { _permit: Option<OwnedSemaphorePermit> },
}

impl LocalQueues {
    /// Joins the end of the queue, unless the queue is full.
    pub(crate) fn join(&self, key: &LockKey, max_waiters: usize) -> Result<QueuePosition, Error> {
        let digest = *key.digest();
        let (head_permit, probe_permits) = {
            let mut map = self.0.lock();
            let one = || Arc::new(Semaphore::new(1));
            let fresh = || LocalQueue { head_permit: one(), probe_permits: one(), members: 0 };
            let queue = map.entry(digest).or_insert_with(fresh);
            if queue.members > max_waiters {
                return Err(Error::TooManyWaiters { limit: max_waiters });
            }
            queue.members += 1;
            (Arc::clone(&queue.head_permit), Arc::clone(&queue.probe_permits))
        };
        let state = match Arc::clone(&head_permit).try_acquire_owned() {
            Ok(permit) => PositionState::Head { _permit: Some(permit) },
            Err(_) => PositionState::Waiting(Box::pin(async move { head_permit.acquire_owned().await.ok() })),
        };
        Ok(QueuePosition { queues: self.clone(), digest, state, probe_permits, probe_permit: None })
    }

    /// Returns the number of members of this key's queue, including the head.
    pub(crate) fn members(&self, key: &LockKey) -> usize {
        self.0.lock().get(key.digest()).map_or(0, |queue| queue.members)
    }
}

impl QueuePosition {
    pub(crate) fn is_head(&self) -> bool {
        matches!(self.state, PositionState::Head { .. })
    }

    /// Returns whether this member probes while it waits. The head does, and one of the waiting members does, because
    /// the head may hold the lock for long. The others need not.
    pub(crate) fn should_probe(&mut self) -> bool {
        if !self.is_head() && self.probe_permit.is_none() {
            self.probe_permit = Arc::clone(&self.probe_permits).try_acquire_owned().ok();
        }
        self.is_head() || self.probe_permit.is_some()
    }

    /// Waits until this member is the head. Cancelling the wait keeps the position.
    pub(crate) async fn wait_for_head(&mut self) {
        if let PositionState::Waiting(head_permit) = &mut self.state {
            // The semaphore is never closed. If it were, no member would be left waiting.
            self.state = PositionState::Head { _permit: head_permit.as_mut().await };
            self.probe_permit = None;
        }
    }
}

impl Drop for QueuePosition {
    fn drop(&mut self) {
        let mut map = self.queues.0.lock();
        if let Some(queue) = map.get_mut(&self.digest) {
            queue.members -= 1;
            if queue.members == 0 {
                map.remove(&self.digest);
            }
        }
    }
}

impl fmt::Debug for QueuePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePosition").field("is_head", &self.is_head()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_head_and_one_waiting_member_probe_and_the_queue_ends_with_its_last_member() {
        let (queues, key) = (LocalQueues::default(), LockKey::new("a", "b").unwrap());
        let join = || queues.join(&key, 2);
        let (mut first, mut second, mut third) = (join().unwrap(), join().unwrap(), join().unwrap());
        assert!(matches!(join(), Err(Error::TooManyWaiters { limit: 2 })));
        assert_eq!(
            format!("{first:?} {second:?}"),
            "QueuePosition { is_head: true, .. } QueuePosition { is_head: false, .. }"
        );
        for _ in 0..2 {
            let probes = [&mut first, &mut second, &mut third].map(QueuePosition::should_probe);
            assert_eq!(probes, [true, true, false]);
        }
        assert_eq!(queues.members(&key), 3);
        drop(first);
        assert_eq!(queues.members(&key), 2);
        second.wait_for_head().await;
        assert!(second.is_head() && third.should_probe(), "the new head leaves the probe to the next member");
        drop((second, third));
        assert!(queues.0.lock().is_empty());
    }
}

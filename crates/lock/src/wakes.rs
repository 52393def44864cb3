//! Notifications of released locks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::Nonce;

type Digest = [u8; 32];

/// The last notification of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Heard {
    /// No notification yet.
    #[default]
    Nothing,
    /// The lock is free, and reserved for this nonce for a moment.
    Next(Nonce),
    /// The lock may be free, without a reservation, or a notification may have been missed.
    Maybe,
}

/// The subscribers, by lock. Engines publish, the acquisition loop subscribes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wakes(Arc<Mutex<HashMap<Digest, watch::Sender<Heard>>>>);

/// A subscription. When the last one for a lock is dropped, the entry of the lock is removed.
#[derive(Debug)]
pub(crate) struct Subscription {
    wakes: Wakes,
    digest: Digest,
    heard: watch::Receiver<Heard>,
}

impl Wakes {
    pub(crate) fn subscribe(&self, digest: &Digest) -> Subscription {
        let mut map = self.map();
        let heard = map.entry(*digest).or_default().subscribe();
        Subscription { wakes: self.clone(), digest: *digest, heard }
    }

    /// Notifies the subscribers of this lock.
    pub(crate) fn tell(&self, digest: &Digest, heard: Heard) {
        if let Some(sender) = self.map().get(digest) {
            sender.send_replace(heard);
        }
    }

    /// Notifies all subscribers that a notification may have been missed.
    pub(crate) fn tell_all(&self) {
        for sender in self.map().values() {
            sender.send_replace(Heard::Maybe);
        }
    }

    /// Returns whether this lock has a subscriber.
    #[cfg(feature = "ledger")]
    pub(crate) fn is_wanted(&self, digest: &Digest) -> bool {
        self.map().contains_key(digest)
    }

    /// Returns the locks that have subscribers.
    pub(crate) fn digests(&self) -> Vec<Digest> {
        self.map().keys().copied().collect()
    }

    /// Returns the number of locks that have subscribers.
    #[cfg(any(test, feature = "kubernetes"))]
    pub(crate) fn len(&self) -> usize {
        self.map().len()
    }

    fn map(&self) -> std::sync::MutexGuard<'_, HashMap<Digest, watch::Sender<Heard>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscription {
    /// Waits for the next notification.
    pub(crate) async fn heard(&mut self) -> Heard {
        match self.heard.changed().await {
            Ok(()) => *self.heard.borrow_and_update(),
            // The sender lives as long as the subscription.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut map = self.wakes.map();
        // The receiver of this subscription is still counted.
        if map.get(&self.digest).is_some_and(|sender| sender.receiver_count() <= 1) {
            map.remove(&self.digest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nothing_is_kept_of_those_who_are_gone() {
        let wakes = Wakes::default();
        let (mut one, other) = (wakes.subscribe(&[1; 32]), wakes.subscribe(&[1; 32]));
        wakes.tell(&[1; 32], Heard::Maybe);
        assert_eq!(one.heard().await, Heard::Maybe);
        drop(one);
        assert_eq!(wakes.len(), 1);
        drop(other);
        assert_eq!(wakes.len(), 0);
    }
}

//! Notifications of released locks.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::Nonce;

type Digest = [u8; 32];

/// The last notification of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Notification {
    /// No notification yet.
    #[default]
    None,
    /// The lock is free, and reserved for this nonce for a moment.
    ReservedFor(Nonce),
    /// The lock may be free, without a reservation, or a notification may have been missed.
    MayBeFree,
}

/// The subscribers, by lock. Engines publish, the acquisition loop subscribes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Subscribers(Arc<Mutex<HashMap<Digest, watch::Sender<Notification>>>>);

/// A subscription. When the last one for a lock is dropped, the entry of the lock is removed.
#[derive(Debug)]
pub(crate) struct Subscription {
    subscribers: Subscribers,
    digest: Digest,
    receiver: watch::Receiver<Notification>,
}

impl Subscribers {
    pub(crate) fn subscribe(&self, digest: &Digest) -> Subscription {
        let mut map = self.0.lock();
        let receiver = map.entry(*digest).or_default().subscribe();
        Subscription { subscribers: self.clone(), digest: *digest, receiver }
    }

    /// Notifies the subscribers of this lock.
    pub(crate) fn notify(&self, digest: &Digest, notification: Notification) {
        if let Some(sender) = self.0.lock().get(digest) {
            sender.send_replace(notification);
        }
    }

    /// Notifies all subscribers that a notification may have been missed.
    pub(crate) fn notify_all(&self) {
        for sender in self.0.lock().values() {
            sender.send_replace(Notification::MayBeFree);
        }
    }

    /// Returns whether this lock has a subscriber.
    #[cfg(feature = "ledger")]
    pub(crate) fn has_subscriber(&self, digest: &Digest) -> bool {
        self.0.lock().contains_key(digest)
    }

    /// Returns the locks that have subscribers.
    pub(crate) fn digests(&self) -> Vec<Digest> {
        self.0.lock().keys().copied().collect()
    }

    /// Returns the number of locks that have subscribers.
    #[cfg(any(test, feature = "kubernetes"))]
    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }
}

impl Subscription {
    /// Waits for the next notification.
    pub(crate) async fn recv(&mut self) -> Notification {
        match self.receiver.changed().await {
            Ok(()) => *self.receiver.borrow_and_update(),
            // The sender lives as long as the subscription.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut map = self.subscribers.0.lock();
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
    async fn the_entry_of_a_lock_is_removed_with_its_last_subscription() {
        let subscribers = Subscribers::default();
        let (mut one, other) = (subscribers.subscribe(&[1; 32]), subscribers.subscribe(&[1; 32]));
        subscribers.notify(&[1; 32], Notification::MayBeFree);
        assert_eq!(one.recv().await, Notification::MayBeFree);
        drop(one);
        assert_eq!(subscribers.len(), 1);
        drop(other);
        assert_eq!(subscribers.len(), 0);
    }
}

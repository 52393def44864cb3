//! Queues with two bounds: the number of items, and their size in bytes.

use std::sync::Arc;

use tokio::sync::mpsc::{self, error::TryRecvError, error::TrySendError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The sending end.
#[derive(Debug)]
pub struct Sender<T> {
    items: mpsc::Sender<(T, OwnedSemaphorePermit)>,
    room: Arc<Semaphore>,
    most_bytes: u32,
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self { items: self.items.clone(), room: self.room.clone(), most_bytes: self.most_bytes }
    }
}

/// The receiving end; items arrive in order.
#[derive(Debug)]
pub struct Receiver<T> {
    items: mpsc::Receiver<(T, OwnedSemaphorePermit)>,
    room: Arc<Semaphore>,
}

/// The reason why an item was not queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum QueueError {
    /// The queue is full now.
    #[error("the queue is full: try again later")]
    Full,
    /// The receiver was dropped.
    #[error("the receiver of the queue has ended")]
    Closed,
}

/// Creates a queue for at most `most` items of at most `most_bytes` bytes. An item larger than the whole queue is
/// accepted when the queue is empty.
pub fn queue<T>(most: usize, most_bytes: usize) -> (Sender<T>, Receiver<T>) {
    let most_bytes = u32::try_from(most_bytes).unwrap_or(u32::MAX).clamp(1, 1 << 28);
    let (sender, receiver) = mpsc::channel(most.clamp(1, Semaphore::MAX_PERMITS));
    let room = Arc::new(Semaphore::new(usize::try_from(most_bytes).unwrap_or(usize::MAX)));
    (Sender { items: sender, room: room.clone(), most_bytes }, Receiver { items: receiver, room })
}

impl<T> Sender<T> {
    /// Queues the item; waits for room. Cancel-safe: after a cancellation the item is not queued.
    pub async fn send(&self, item: T, bytes: usize) -> Result<(), QueueError> {
        let room =
            self.room.clone().acquire_many_owned(self.weight(bytes)).await.map_err(|_| QueueError::Closed)?;
        self.items.send((item, room)).await.map_err(|_| QueueError::Closed)
    }

    /// Queues the item if there is room now.
    pub fn try_send(&self, item: T, bytes: usize) -> Result<(), QueueError> {
        if self.is_closed() {
            return Err(QueueError::Closed);
        }
        let room =
            self.room.clone().try_acquire_many_owned(self.weight(bytes)).map_err(|_| QueueError::Full)?;
        self.items.try_send((item, room)).map_err(|error| match error {
            TrySendError::Full(_) => QueueError::Full,
            TrySendError::Closed(_) => QueueError::Closed,
        })
    }

    /// Returns whether the receiver was dropped.
    pub fn is_closed(&self) -> bool {
        self.items.is_closed()
    }

    fn weight(&self, bytes: usize) -> u32 {
        u32::try_from(bytes).unwrap_or(u32::MAX).clamp(1, self.most_bytes)
    }
}

impl<T> Receiver<T> {
    /// Waits for the next item. Returns `None` if the queue is empty and all senders were dropped. Cancel-safe.
    pub async fn recv(&mut self) -> Option<T> {
        self.items.recv().await.map(|(item, _room)| item)
    }

    /// Returns the next item if there is one.
    pub fn try_recv(&mut self) -> Option<T> {
        match self.items.try_recv() {
            Ok((item, _room)) => Some(item),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => None,
        }
    }
}

/// Releases the senders that wait for room.
impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.room.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_queue_is_limited_by_items_and_by_bytes() {
        let (sender, mut receiver) = queue(2, 10);
        assert_eq!(sender.try_send('a', 1), Ok(()));
        assert_eq!(sender.try_send('b', 1), Ok(()));
        assert_eq!(sender.try_send('c', 1), Err(QueueError::Full), "the queue holds two items");
        assert_eq!(receiver.recv().await, Some('a'));
        assert_eq!(sender.try_send('d', 10), Err(QueueError::Full), "the queue holds one byte");
        assert_eq!(sender.try_send('d', 9), Ok(()));
        assert_eq!(
            (receiver.try_recv(), receiver.try_recv(), receiver.try_recv()),
            (Some('b'), Some('d'), None)
        );
        assert_eq!(sender.try_send('e', 1000), Ok(()), "too large, but alone");
        assert_eq!(sender.try_send('f', 0), Err(QueueError::Full));
    }

    #[tokio::test]
    async fn dropping_the_receiver_releases_a_waiting_sender() {
        let (sender, receiver) = queue(1, 10);
        sender.send('a', 10).await.unwrap();
        let waiting = tokio::spawn({
            let sender = sender.clone();
            async move { sender.send('b', 1).await }
        });
        tokio::task::yield_now().await;
        drop(receiver);
        assert_eq!(waiting.await.unwrap(), Err(QueueError::Closed));
        assert_eq!(sender.try_send('c', 1), Err(QueueError::Closed));
    }
}

//! Sends messages to a peer without waiting for it: a queue in front of a link, and frames with many messages.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Serialize;
use tokio::sync::mpsc;

use super::Link;
use crate::{Error, encode, metrics};

/// The maximum number of queue entries that are merged at a time.
const MAX_MERGED: usize = 1024;

/// A message whose encoded size is known before it is encoded.
pub trait EncodedSize {
    /// Returns the approximate encoded size, in bytes. It must not be smaller than the actual size by more than a tenth.
    fn encoded_bytes(&self) -> usize;
}

/// The limits of a [`MessageSender`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SenderLimits {
    /// The size of the queue, in bytes. The sender drops a message that does not fit, unless the queue is empty.
    pub max_queued_bytes: usize,
    /// The size up to which messages are merged into one frame, in bytes. A longer message has a frame of its own.
    pub max_merged_bytes: usize,
}

/// Sends messages over a link, in order and without waiting, many in one frame.
///
/// A protocol that retransmits uses it for its traffic: the sender drops messages if the queue is full, and while
/// the peer is unreachable, because they would be stale when the link connects again. It counts them. The peer's handler
/// receives each frame as one encoded `Vec<T>`.
///
/// Several senders may share a link. Each has a queue of its own, and their frames alternate, so that one that has much to
/// send does not hold up the others. After the last clone is dropped, the sender sends the queued messages, and closes the
/// link if nothing else uses it.
pub struct MessageSender<T> {
    link: Link,
    queue: mpsc::UnboundedSender<Entry<T>>,
    queued_bytes: Arc<AtomicUsize>,
    max_queued_bytes: usize,
}

/// Messages that are queued or dropped together.
struct Entry<T> {
    messages: Vec<T>,
    bytes: usize,
}

impl<T: EncodedSize + Serialize + Send + Sync + 'static> MessageSender<T> {
    /// Starts a sender on this link. Must be called within a tokio runtime; the sender's task runs there.
    pub fn start(link: Link, limits: SenderLimits) -> Self {
        let (queue, entries) = mpsc::unbounded_channel();
        let queued_bytes = Arc::new(AtomicUsize::new(0));
        tokio::spawn(send_queued(link.clone(), entries, queued_bytes.clone(), limits.max_merged_bytes));
        Self { link, queue, queued_bytes, max_queued_bytes: limits.max_queued_bytes }
    }

    /// Queues a message, or drops it. Returns whether it is queued.
    pub fn send(&self, message: T) -> bool {
        self.send_all(vec![message])
    }

    /// Queues these messages together, or drops all of them. Returns whether they are queued. An empty queue accepts
    /// messages of any size.
    pub fn send_all(&self, messages: Vec<T>) -> bool {
        let bytes = messages.iter().map(EncodedSize::encoded_bytes).sum();
        let before = self.queued_bytes.fetch_add(bytes, Ordering::AcqRel);
        let fits = before == 0 || before.saturating_add(bytes) <= self.max_queued_bytes;
        // The queue is closed only if the runtime shuts down.
        let count = messages.len();
        let is_queued = fits && self.queue.send(Entry { messages, bytes }).is_ok();
        if !is_queued {
            metrics::messages_dropped("full", count);
            self.queued_bytes.fetch_sub(bytes, Ordering::AcqRel);
        }
        is_queued
    }

    /// Returns the link, for calls to the same peer and for its status.
    pub fn link(&self) -> &Link {
        &self.link
    }
}

/// Sends the queued messages. Drops the messages that cannot be sent now.
async fn send_queued<T: EncodedSize + Serialize + Send + Sync>(
    link: Link,
    mut entries: mpsc::UnboundedReceiver<Entry<T>>,
    queued_bytes: Arc<AtomicUsize>,
    max_merged_bytes: usize,
) {
    let mut waiting = Vec::new();
    while entries.recv_many(&mut waiting, MAX_MERGED).await > 0 {
        let bytes: usize = waiting.iter().map(|entry| entry.bytes).sum();
        let mut is_reachable = true;
        for frame in merge(waiting.drain(..).flat_map(|entry| entry.messages), max_merged_bytes) {
            let sent = match encode(&frame) {
                Ok(encoded) if is_reachable => link.send(encoded).await,
                Ok(_) => Err(Error::Closed),
                Err(error) => Err(error),
            };
            let reason = match sent {
                Ok(()) => continue,
                Err(Error::TooLarge { .. }) => "too_large",
                Err(Error::Encode(_)) => "not_encodable",
                Err(_) => "unreachable",
            };
            is_reachable &= reason != "unreachable";
            metrics::messages_dropped(reason, frame.len());
        }
        queued_bytes.fetch_sub(bytes, Ordering::AcqRel);
    }
    link.close_last().await;
}

/// Merges messages into as few frames as possible, in order.
fn merge<T: EncodedSize>(messages: impl Iterator<Item = T>, max_bytes: usize) -> Vec<Vec<T>> {
    let (mut frames, mut bytes) = (Vec::<Vec<T>>::new(), 0_usize);
    for message in messages {
        let size = message.encoded_bytes();
        bytes = bytes.saturating_add(size);
        match frames.last_mut() {
            Some(frame) if bytes <= max_bytes => frame.push(message),
            _ => {
                bytes = size;
                frames.push(vec![message]);
            }
        }
    }
    frames
}

impl<T> Clone for MessageSender<T> {
    fn clone(&self) -> Self {
        let Self { link, queue, queued_bytes, max_queued_bytes } = self;
        Self {
            link: link.clone(),
            queue: queue.clone(),
            queued_bytes: queued_bytes.clone(),
            max_queued_bytes: *max_queued_bytes,
        }
    }
}

impl<T> fmt::Debug for MessageSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageSender")
            .field("link", &self.link)
            .field("queued_bytes", &self.queued_bytes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl EncodedSize for usize {
        fn encoded_bytes(&self) -> usize {
            *self
        }
    }

    #[test]
    fn messages_are_merged_in_order_up_to_the_limit() {
        let sizes = [10_usize, 20, 50, 50, 30, 200, 5, 1];
        let frames = merge(sizes.into_iter(), 100);
        assert_eq!(frames, [vec![10, 20, 50], vec![50, 30], vec![200], vec![5, 1]]);
        assert!(merge(std::iter::empty::<usize>(), 100).is_empty());
    }
}

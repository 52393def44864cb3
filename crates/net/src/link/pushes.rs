//! The receiver of a peer's pushes.

use bytes::Bytes;

use crate::ConnectionLimits;
use crate::metrics::{self, Side};
use crate::queue::{QueueError, Receiver, Sender, queue};

/// An event from the peer.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PushEvent {
    /// There is a new connection. Pushes made while there was no connection are lost: catch up.
    Connected,
    /// This many pushes were dropped at this position, because a queue was full on one of the sides: catch up.
    Missed(u64),
    /// A push.
    Push(Bytes),
}

/// The pushes of the peer of a link, in order.
///
/// It buffers as many pushes and bytes as the link's limits allow. Further pushes are dropped, so that a slow reader
/// delays no replies. [`PushEvent::Missed`] states the position and the number of dropped pushes.
#[derive(Debug)]
pub struct PushReceiver {
    events: Receiver<PushEvent>,
}

impl PushReceiver {
    /// Returns the next event, or `None` when the link is closed or dropped. Cancel-safe.
    pub async fn next(&mut self) -> Option<PushEvent> {
        self.events.recv().await
    }

    /// Returns the next event if it has already arrived.
    pub fn try_next(&mut self) -> Option<PushEvent> {
        self.events.try_recv()
    }
}

/// The driver's end of the queue.
#[derive(Debug)]
pub(super) struct PushSender {
    events: Sender<PushEvent>,
    /// Whether a new connection has not been reported yet, because the queue was full.
    is_new: bool,
    missed: u64,
    /// The number of the next push on this connection.
    next: u64,
}

pub(super) fn push_queue(limits: &ConnectionLimits) -> (PushSender, PushReceiver) {
    let (sender, receiver) = queue(limits.max_queued, limits.max_queued_bytes);
    (PushSender { events: sender, is_new: false, missed: 0, next: 0 }, PushReceiver { events: receiver })
}

impl PushSender {
    pub(super) fn connected(&mut self) {
        (self.is_new, self.missed, self.next) = (true, 0, 0);
        self.report_gaps();
    }

    /// Queues the push with this number.
    pub(super) fn pushed(&mut self, number: u64, message: Bytes) {
        // If the receiver was dropped, pushes are neither missed nor counted.
        if self.events.is_closed() {
            return;
        }
        // A gap in the numbers is the number of pushes that the other side dropped.
        self.missed = self.missed.saturating_add(number.saturating_sub(self.next));
        self.next = number.saturating_add(1);
        let bytes = message.len();
        if self.report_gaps() && self.events.try_send(PushEvent::Push(message), bytes).is_ok() {
            return;
        }
        self.missed = self.missed.saturating_add(1);
        metrics::pushes_dropped(Side::Link, 1);
    }

    /// Reports a new connection and missed pushes before anything else. Returns whether nothing is left to report.
    fn report_gaps(&mut self) -> bool {
        if self.is_new && self.events.try_send(PushEvent::Connected, 0) != Err(QueueError::Full) {
            self.is_new = false;
        }
        if !self.is_new && self.missed > 0 && self.events.try_send(PushEvent::Missed(self.missed), 0).is_ok()
        {
            self.missed = 0;
        }
        !self.is_new && self.missed == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(text: &'static str) -> PushEvent {
        PushEvent::Push(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn gaps_are_reported_at_their_position() {
        let limits = ConnectionLimits { max_queued: 3, ..ConnectionLimits::default() };
        let (mut push_sender, mut pushes) = push_queue(&limits);
        push_sender.connected();
        for (number, text) in [(0, "a"), (1, "b"), (2, "dropped here"), (3, "dropped here, too")] {
            push_sender.pushed(number, Bytes::from_static(text.as_bytes()));
        }
        let all = |pushes: &mut PushReceiver| std::iter::from_fn(|| pushes.try_next()).collect::<Vec<_>>();
        assert_eq!(all(&mut pushes), [PushEvent::Connected, push("a"), push("b")]);
        // The other side dropped number 4.
        push_sender.pushed(5, Bytes::from_static(b"c"));
        assert_eq!(all(&mut pushes), [PushEvent::Missed(3), push("c")]);
        push_sender.connected();
        push_sender.pushed(0, Bytes::from_static(b"d"));
        assert_eq!(all(&mut pushes), [PushEvent::Connected, push("d")]);
    }

    #[test]
    fn a_new_connection_is_reported_even_if_the_queue_was_full() {
        let (mut push_sender, mut pushes) =
            push_queue(&ConnectionLimits { max_queued: 1, ..ConnectionLimits::default() });
        push_sender.connected();
        push_sender.connected();
        assert_eq!(pushes.try_next(), Some(PushEvent::Connected));
        push_sender.pushed(0, Bytes::from_static(b"dropped: the queue holds the earlier event"));
        assert_eq!(pushes.try_next(), Some(PushEvent::Connected));
        push_sender.pushed(1, Bytes::from_static(b"a"));
        assert_eq!(pushes.try_next(), Some(PushEvent::Missed(1)));
    }
}

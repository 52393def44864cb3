//! The receiver of a peer's pushes.

use bytes::Bytes;

use crate::Limits;
use crate::metrics::{self, Side};
use crate::queue::{NotTaken, Receiver, Sender, queue};

/// An event from the peer.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Heard {
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
/// delays no replies. [`Heard::Missed`] states the position and the number of dropped pushes.
#[derive(Debug)]
pub struct Hearing {
    heard: Receiver<Heard>,
}

impl Hearing {
    /// Returns the next event, or `None` when the link is closed or dropped. Cancel-safe.
    pub async fn next(&mut self) -> Option<Heard> {
        self.heard.recv().await
    }

    /// Returns the next event if it has already arrived.
    pub fn try_next(&mut self) -> Option<Heard> {
        self.heard.try_recv()
    }
}

/// The driver's end of the queue.
#[derive(Debug)]
pub(super) struct Sounds {
    heard: Sender<Heard>,
    /// Whether a new connection has not been reported yet, because the queue was full.
    is_new: bool,
    missed: u64,
    /// The number of the next push on this connection.
    next: u64,
}

pub(super) fn hearing(limits: &Limits) -> (Sounds, Hearing) {
    let (sender, receiver) = queue(limits.max_queued, limits.max_queued_bytes);
    (Sounds { heard: sender, is_new: false, missed: 0, next: 0 }, Hearing { heard: receiver })
}

impl Sounds {
    pub(super) fn connected(&mut self) {
        (self.is_new, self.missed, self.next) = (true, 0, 0);
        self.tell_of_gaps();
    }

    /// Queues the push with this number.
    pub(super) fn pushed(&mut self, number: u64, message: Bytes) {
        // If the receiver was dropped, pushes are neither missed nor counted.
        if self.heard.is_gone() {
            return;
        }
        // A gap in the numbers is the number of pushes that the other side dropped.
        self.missed = self.missed.saturating_add(number.saturating_sub(self.next));
        self.next = number.saturating_add(1);
        let bytes = message.len();
        if self.tell_of_gaps() && self.heard.try_send(Heard::Push(message), bytes).is_ok() {
            return;
        }
        self.missed = self.missed.saturating_add(1);
        metrics::pushes_dropped(Side::Link, 1);
    }

    /// Reports a new connection and missed pushes before anything else. Returns whether nothing is left to report.
    fn tell_of_gaps(&mut self) -> bool {
        if self.is_new && self.heard.try_send(Heard::Connected, 0) != Err(NotTaken::Full) {
            self.is_new = false;
        }
        if !self.is_new && self.missed > 0 && self.heard.try_send(Heard::Missed(self.missed), 0).is_ok() {
            self.missed = 0;
        }
        !self.is_new && self.missed == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(text: &'static str) -> Heard {
        Heard::Push(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn gaps_are_told_where_they_are_whoever_made_them() {
        let limits = Limits { max_queued: 3, ..Limits::default() };
        let (mut sounds, mut hearing) = hearing(&limits);
        sounds.connected();
        for (number, text) in [(0, "a"), (1, "b"), (2, "dropped here"), (3, "dropped here, too")] {
            sounds.pushed(number, Bytes::from_static(text.as_bytes()));
        }
        let all = |hearing: &mut Hearing| std::iter::from_fn(|| hearing.try_next()).collect::<Vec<_>>();
        assert_eq!(all(&mut hearing), [Heard::Connected, push("a"), push("b")]);
        // The other side dropped number 4.
        sounds.pushed(5, Bytes::from_static(b"c"));
        assert_eq!(all(&mut hearing), [Heard::Missed(3), push("c")]);
        sounds.connected();
        sounds.pushed(0, Bytes::from_static(b"d"));
        assert_eq!(all(&mut hearing), [Heard::Connected, push("d")]);
    }

    #[test]
    fn a_new_connection_is_told_of_however_full_it_was() {
        let (mut sounds, mut hearing) = hearing(&Limits { max_queued: 1, ..Limits::default() });
        sounds.connected();
        sounds.connected();
        assert_eq!(hearing.try_next(), Some(Heard::Connected));
        sounds.pushed(0, Bytes::from_static(b"finds the word before it in its place"));
        assert_eq!(hearing.try_next(), Some(Heard::Connected));
        sounds.pushed(1, Bytes::from_static(b"a"));
        assert_eq!(hearing.try_next(), Some(Heard::Missed(1)));
    }
}

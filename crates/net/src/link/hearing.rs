//! What a peer pushes, as it is heard on this side.

use bytes::Bytes;

use crate::Limits;
use crate::metrics::{self, Side};
use crate::queue::{NotTaken, Receiver, Sender, queue};

/// Something heard from the peer.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Heard {
    /// There is a new connection. What was pushed while there was none was not heard: catch up.
    Connected,
    /// So many pushes were dropped here, because a queue was full on one of the sides: catch up.
    Missed(u64),
    /// A push.
    Push(Bytes),
}

/// What the peer of a link pushes, in order.
///
/// It holds so many pushes and bytes as the link's limits say. Further ones are dropped, so that a slow reader delays no
/// replies; [`Heard::Missed`] tells where and how many.
#[derive(Debug)]
pub struct Hearing {
    heard: Receiver<Heard>,
}

impl Hearing {
    /// The next; none when the link is closed or dropped.
    pub async fn next(&mut self) -> Option<Heard> {
        self.heard.recv().await
    }

    /// The next, if it is there already.
    pub fn try_next(&mut self) -> Option<Heard> {
        self.heard.try_recv()
    }
}

/// The driver's end.
#[derive(Debug)]
pub(super) struct Sounds {
    heard: Sender<Heard>,
    /// A new connection that could not be told of yet.
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

    /// A push with its number has come.
    pub(super) fn pushed(&mut self, number: u64, message: Bytes) {
        // Whoever does not want to hear misses nothing.
        if self.heard.is_gone() {
            return;
        }
        // What the other side has dropped is missing from the numbers.
        self.missed = self.missed.saturating_add(number.saturating_sub(self.next));
        self.next = number.saturating_add(1);
        let bytes = message.len();
        if self.tell_of_gaps() && self.heard.try_send(Heard::Push(message), bytes).is_ok() {
            return;
        }
        self.missed = self.missed.saturating_add(1);
        metrics::pushes_dropped(Side::Link, 1);
    }

    /// Says first what comes first; whether nothing is left of that to say.
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
        // The other side has dropped number 4.
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

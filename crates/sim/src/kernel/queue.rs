//! What will happen, in the order it happens.
//!
//! A radix heap with 64 slots a level, over a slab. Time never goes back, so an event's slot can be named
//! by the highest base-64 digit in which its time differs from now: pushing costs a few shifts, and an
//! event moves down at most once a level before it happens. Two properties follow from the invariant
//! "every event lies in the slot that its time and now name":
//!
//! - a lower level happens before a higher one, a lower slot before a higher one;
//! - events of one time always share a slot, and slots are lines that are served and moved in order: so
//!   equal times happen in the order they were pushed, without a sequence number in each event.

const DIGIT_BITS: u32 = 6;
const SLOTS: usize = 1 << DIGIT_BITS;
const LEVELS: usize = 11;
/// Ends a line.
const NOBODY: u32 = u32::MAX;

/// A queue of events over virtual time in microseconds; it owns the clock.
///
/// ```
/// use holdoff_sim::kernel::EventQueue;
///
/// let mut queue = EventQueue::new();
/// queue.push(20, "later");
/// queue.push(10, "sooner");
/// assert_eq!(queue.pop(), Some((10, "sooner")));
/// assert_eq!(queue.now_us(), 10);
/// ```
#[derive(Clone, Debug)]
pub struct EventQueue<E> {
    now_us: u64,
    /// `LEVELS × SLOTS` lines.
    lines: Vec<Line>,
    /// One bit a slot that holds somebody.
    occupied: [u64; LEVELS],
    pending: Vec<Pending<E>>,
    first_free: u32,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Line {
    first: u32,
    last: u32,
    /// Kept while the line grows, so that nobody has to walk it: a walk costs a cache miss an event. A
    /// line shrinks only where all its times are equal.
    earliest_us: u64,
}

const EMPTY: Line = Line { first: NOBODY, last: NOBODY, earliest_us: u64::MAX };

#[derive(Clone, Debug)]
struct Pending<E> {
    at_us: u64,
    next: u32,
    /// Taken when it happens; the place is then free.
    event: Option<E>,
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E> EventQueue<E> {
    /// The most events that can be pending at once.
    pub const LIMIT: usize = NOBODY as usize;

    /// An empty queue at time 0.
    pub fn new() -> Self {
        Self::with_capacity(0)
    }

    /// An empty queue with room for so many pending events.
    pub fn with_capacity(events: usize) -> Self {
        Self {
            now_us: 0,
            lines: vec![EMPTY; LEVELS * SLOTS],
            occupied: [0; LEVELS],
            pending: Vec::with_capacity(events),
            first_free: NOBODY,
            len: 0,
        }
    }

    /// The time of the event popped last.
    pub fn now_us(&self) -> u64 {
        self.now_us
    }

    /// How many events are pending.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing will happen any more.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The memory it holds.
    pub fn bytes(&self) -> usize {
        self.pending.capacity() * size_of::<Pending<E>>()
            + self.lines.capacity() * size_of::<Line>()
            + size_of::<Self>()
    }

    /// Lets an event happen at this time; one for the past happens now, after all others due now.
    ///
    /// `false` if [`LIMIT`](Self::LIMIT) events are pending already, and then this one is not.
    pub fn push(&mut self, at_us: u64, event: E) -> bool {
        let at_us = at_us.max(self.now_us);
        let pending = Pending { at_us, next: NOBODY, event: Some(event) };
        let Some(place) = self.store(pending) else { return false };
        self.append(place, at_us);
        self.len += 1;
        true
    }

    /// Lets an event happen so long from now.
    pub fn push_after(&mut self, delay_us: u64, event: E) -> bool {
        self.push(self.now_us.saturating_add(delay_us), event)
    }

    /// When the next event happens.
    pub fn next_at_us(&self) -> Option<u64> {
        let (level, digit) = self.earliest_slot()?;
        self.lines.get(level * SLOTS + digit).map(|line| line.earliest_us)
    }

    /// The next event and its time, which becomes now.
    pub fn pop(&mut self) -> Option<(u64, E)> {
        let (mut level, mut digit) = self.earliest_slot()?;
        if level > 0 {
            self.spread(level, digit)?;
            (level, digit) = self.earliest_slot()?;
        }
        debug_assert_eq!(level, 0, "the earliest event of a spread slot is due now");
        let slot = level * SLOTS + digit;
        let line = self.lines.get_mut(slot)?;
        let place = line.first;
        let freed = self.pending.get_mut(place as usize)?;
        let event = freed.event.take()?;
        self.now_us = freed.at_us;
        line.first = freed.next;
        if line.first == NOBODY {
            *line = EMPTY;
            self.mark(level, digit, false);
        }
        if let Some(freed) = self.pending.get_mut(place as usize) {
            freed.next = self.first_free;
        }
        self.first_free = place;
        self.len -= 1;
        Some((self.now_us, event))
    }

    /// The next event if it happens before or at this time.
    pub fn pop_until(&mut self, limit_us: u64) -> Option<(u64, E)> {
        if self.next_at_us()? > limit_us { None } else { self.pop() }
    }

    /// Puts an event into the slab; `None` if that is full.
    fn store(&mut self, pending: Pending<E>) -> Option<u32> {
        let free = self.first_free;
        if let Some(place) = self.pending.get_mut(free as usize) {
            self.first_free = place.next;
            *place = pending;
            return Some(free);
        }
        let place = u32::try_from(self.pending.len()).ok().filter(|place| *place != NOBODY)?;
        self.pending.push(pending);
        Some(place)
    }

    /// Puts a stored event at the end of the line its time names.
    fn append(&mut self, place: u32, at_us: u64) {
        let (level, digit) = slot_of(at_us, self.now_us);
        let Some(line) = self.lines.get_mut(level * SLOTS + digit) else { return };
        let before = line.last;
        line.last = place;
        line.earliest_us = line.earliest_us.min(at_us);
        if before == NOBODY {
            line.first = place;
            self.mark(level, digit, true);
        } else if let Some(before) = self.pending.get_mut(before as usize) {
            before.next = place;
        }
    }

    /// Moves now to the earliest time of a slot, and its events down to where that puts them.
    fn spread(&mut self, level: usize, digit: usize) -> Option<()> {
        let line = self.lines.get_mut(level * SLOTS + digit)?;
        let line = std::mem::replace(line, EMPTY);
        self.mark(level, digit, false);
        self.now_us = line.earliest_us;
        let mut place = line.first;
        while let Some(pending) = self.pending.get_mut(place as usize) {
            let (at_us, next) = (pending.at_us, pending.next);
            pending.next = NOBODY;
            self.append(place, at_us);
            place = next;
        }
        Some(())
    }

    fn earliest_slot(&self) -> Option<(usize, usize)> {
        let (level, slots) = self.occupied.iter().enumerate().find(|(_, slots)| **slots != 0)?;
        Some((level, slots.trailing_zeros() as usize))
    }

    fn mark(&mut self, level: usize, digit: usize, is_occupied: bool) {
        let Some(slots) = self.occupied.get_mut(level) else { return };
        if is_occupied {
            *slots |= 1 << digit;
        } else {
            *slots &= !(1 << digit);
        }
    }
}

/// The highest base-64 digit in which the two times differ, and its value.
fn slot_of(at_us: u64, now_us: u64) -> (usize, usize) {
    let level = (at_us ^ now_us).checked_ilog2().unwrap_or(0) / DIGIT_BITS;
    let digit = (at_us >> (level * DIGIT_BITS)) & (SLOTS as u64 - 1);
    (level as usize, usize::try_from(digit).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_times_happen_in_the_order_they_were_pushed() {
        let mut queue = EventQueue::new();
        queue.push(1_000_000, 1);
        queue.push(5, 0);
        queue.push(1_000_000, 2);
        assert_eq!(queue.pop(), Some((5, 0)));
        queue.push(1_000_000, 3);
        let rest: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|(_, event)| event).collect();
        assert_eq!(rest, [1, 2, 3]);
    }

    #[test]
    fn the_past_happens_now() {
        let mut queue = EventQueue::new();
        queue.push(u64::MAX, "end");
        queue.push(100, "now");
        assert_eq!(queue.pop(), Some((100, "now")));
        queue.push(7, "late");
        assert_eq!(queue.pop(), Some((100, "late")));
        assert_eq!(queue.pop(), Some((u64::MAX, "end")));
        assert_eq!(queue.pop(), None);
    }

    #[test]
    fn looking_ahead_moves_nothing() {
        let mut queue = EventQueue::new();
        queue.push(100_000, "far");
        assert_eq!(queue.next_at_us(), Some(100_000));
        assert_eq!(queue.pop_until(99_999), None);
        queue.push(50, "near");
        assert_eq!(queue.pop_until(99_999), Some((50, "near")));
    }
}

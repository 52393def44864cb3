//! A priority queue of future events.
//!
//! It is a radix heap with 64 slots a level. Time never goes back, so the highest base-64 digit in which an event's
//! time differs from the current time selects the event's slot. A push costs a few shifts, and an event moves down at
//! most once a level before it is popped. Two properties follow from the invariant "every event lies in the slot that
//! its time and the current time select":
//!
//! - a lower level precedes a higher one, and a lower slot precedes a higher one;
//! - events of the same time always share a slot, and slots are lines that are served and moved in order. Events of the
//!   same time are therefore popped in the order in which they were pushed, without a sequence number in each event.
//!
//! A line is a chain of small blocks from one slab, so that moving a line reads memory in order. With a link in each
//! event, every event would cost a cache miss a level.

const DIGIT_BITS: u32 = 6;
const SLOTS: usize = 1 << DIGIT_BITS;
const LEVELS: usize = 11;
/// The number of events in a block.
const BLOCK: usize = 16;
/// Ends a chain. That many blocks take more than a terabyte: memory ends before the numbers do.
const NONE: u32 = u32::MAX;

/// A queue of events over virtual time in microseconds. The queue owns the clock.
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
    /// One bit for each non-empty slot.
    occupied: [u64; LEVELS],
    blocks: Vec<Block<E>>,
    first_free: u32,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Line {
    first: u32,
    last: u32,
    /// The earliest time in the line, updated as the line grows, so that no reader has to walk the line. A line shrinks
    /// only if all its times are equal.
    earliest_us: u64,
}

const EMPTY: Line = Line { first: NONE, last: NONE, earliest_us: u64::MAX };

/// Some events of a line, in order, in `start..end`.
#[derive(Clone, Debug)]
struct Block<E> {
    next: u32,
    start: u16,
    end: u16,
    events: [Option<(u64, E)>; BLOCK],
}

impl<E> Block<E> {
    fn new() -> Self {
        Self { next: NONE, start: 0, end: 0, events: [const { None }; BLOCK] }
    }

    fn is_full(&self) -> bool {
        usize::from(self.end) == BLOCK
    }

    fn put(&mut self, at_us: u64, event: E) {
        if let Some(place) = self.events.get_mut(usize::from(self.end)) {
            *place = Some((at_us, event));
            self.end += 1;
        }
    }

    fn take(&mut self) -> Option<(u64, E)> {
        let event = self.events.get_mut(usize::from(self.start))?.take()?;
        self.start += 1;
        Some(event)
    }
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E> EventQueue<E> {
    /// Creates an empty queue at time 0.
    pub fn new() -> Self {
        Self::with_capacity(0)
    }

    /// Creates an empty queue with room for `events` pending events. For a small number it may still have to grow.
    pub fn with_capacity(events: usize) -> Self {
        let full_blocks = events.div_ceil(BLOCK);
        // In addition to the full blocks each line may end in a partly filled one; few events fill few lines.
        Self {
            now_us: 0,
            lines: vec![EMPTY; LEVELS * SLOTS],
            occupied: [0; LEVELS],
            blocks: Vec::with_capacity(full_blocks + full_blocks.min(LEVELS * SLOTS)),
            first_free: NONE,
            len: 0,
        }
    }

    /// Returns the current time: the time of the event popped last, or a later one that the clock was
    /// [advanced](Self::advance_to) to.
    pub fn now_us(&self) -> u64 {
        self.now_us
    }

    /// Returns the number of pending events.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no event is pending.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the allocated memory in bytes. Memory is never released, so this is also the peak.
    pub fn bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<Block<E>>()
            + self.lines.capacity() * size_of::<Line>()
            + size_of::<Self>()
    }

    /// Schedules an event at this time. An event in the past happens now, after all other events due now.
    pub fn push(&mut self, at_us: u64, event: E) {
        self.append(at_us.max(self.now_us), event);
        self.len += 1;
    }

    /// Schedules an event after a delay.
    pub fn push_after(&mut self, delay_us: u64, event: E) {
        self.push(self.now_us.saturating_add(delay_us), event);
    }

    /// Returns the time of the next event.
    pub fn next_at_us(&self) -> Option<u64> {
        let (level, digit) = self.earliest_slot()?;
        self.lines.get(level * SLOTS + digit).map(|line| line.earliest_us)
    }

    /// Removes the next event and advances the clock to its time.
    pub fn pop(&mut self) -> Option<(u64, E)> {
        let (mut level, mut digit) = self.earliest_slot()?;
        if level > 0 {
            let earliest_us = self.next_at_us()?;
            self.spread(level, digit, earliest_us)?;
            (level, digit) = self.earliest_slot()?;
        }
        debug_assert_eq!(level, 0, "the earliest event of a spread slot is due now");
        let line = self.lines.get_mut(level * SLOTS + digit)?;
        let number = line.first;
        let block = self.blocks.get_mut(number as usize)?;
        let (at_us, event) = block.take()?;
        self.now_us = at_us;
        self.len -= 1;
        if block.start == block.end {
            line.first = block.next;
            if line.first == NONE {
                *line = EMPTY;
                self.mark(level, digit, false);
            }
            self.free(number);
        }
        Some((at_us, event))
    }

    /// Removes the next event if its time is not later than `limit_us`.
    pub fn pop_until(&mut self, limit_us: u64) -> Option<(u64, E)> {
        if self.next_at_us()? > limit_us { None } else { self.pop() }
    }

    /// Advances the clock to this time without an event.
    ///
    /// The clock never goes back, and never passes a pending event: if an earlier event is pending, the clock stops at
    /// that event's time.
    pub fn advance_to(&mut self, at_us: u64) {
        let at_us = self.next_at_us().map_or(at_us, |next_us| at_us.min(next_us));
        if at_us <= self.now_us {
            return;
        }
        // No event is pending below the digit that changes, because it would be earlier. Above it, and in the other
        // slots of its level, the new time selects the same slots as the old one did.
        let (level, digit) = slot_of(at_us, self.now_us);
        self.spread(level, digit, at_us);
    }

    /// Appends an event to the line that its time selects.
    fn append(&mut self, at_us: u64, event: E) {
        let (level, digit) = slot_of(at_us, self.now_us);
        let slot = level * SLOTS + digit;
        let Some(line) = self.lines.get_mut(slot) else { return };
        line.earliest_us = line.earliest_us.min(at_us);
        let last = line.last;
        match self.blocks.get_mut(last as usize) {
            Some(block) if !block.is_full() => block.put(at_us, event),
            _ => {
                let fresh = self.fresh_block();
                self.chain(slot, fresh);
                self.mark(level, digit, true);
                if let Some(block) = self.blocks.get_mut(fresh as usize) {
                    block.put(at_us, event);
                }
            }
        }
    }

    /// Appends a block to a line.
    fn chain(&mut self, slot: usize, fresh: u32) {
        let Some(line) = self.lines.get_mut(slot) else { return };
        match self.blocks.get_mut(line.last as usize) {
            Some(last) => last.next = fresh,
            None => line.first = fresh,
        }
        line.last = fresh;
    }

    fn fresh_block(&mut self) -> u32 {
        let free = self.first_free;
        if let Some(block) = self.blocks.get_mut(free as usize) {
            self.first_free = block.next;
            (block.next, block.start, block.end) = (NONE, 0, 0);
            return free;
        }
        self.blocks.push(Block::new());
        u32::try_from(self.blocks.len() - 1).unwrap_or(NONE)
    }

    fn free(&mut self, number: u32) {
        if let Some(block) = self.blocks.get_mut(number as usize) {
            block.next = self.first_free;
            self.first_free = number;
        }
    }

    /// Sets the current time to one that lies in a slot, and moves the slot's events down to the slots that the new
    /// time selects.
    fn spread(&mut self, level: usize, digit: usize, now_us: u64) -> Option<()> {
        let line = self.lines.get_mut(level * SLOTS + digit)?;
        let line = std::mem::replace(line, EMPTY);
        self.mark(level, digit, false);
        self.now_us = now_us;
        let mut number = line.first;
        while number != NONE {
            while let Some((at_us, event)) = self.blocks.get_mut(number as usize)?.take() {
                self.append(at_us, event);
            }
            let next = self.blocks.get(number as usize)?.next;
            self.free(number);
            number = next;
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

/// Returns the highest base-64 digit in which the two times differ, and its value.
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
    fn an_event_in_the_past_is_due_now() {
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
    fn peeking_does_not_advance_the_clock() {
        let mut queue = EventQueue::new();
        queue.push(100_000, "far");
        assert_eq!(queue.next_at_us(), Some(100_000));
        assert_eq!(queue.pop_until(99_999), None);
        queue.push(50, "near");
        assert_eq!(queue.pop_until(99_999), Some((50, "near")));
    }
}

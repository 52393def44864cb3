//! A leader's view of one follower: its last matching slot, and the next message to it.

use super::Options;
use crate::{NodeId, Slot};

/// The number of heartbeats after which the acknowledgement of a snapshot is late.
const SNAPSHOT_HEARTBEATS: u64 = 4;

/// A leader's view of a follower.
///
/// | state | the leader sends | acknowledgement | rejection |
/// |---|---|---|---|
/// | probing | a batch from `next`, with each heartbeat and after each rejection | replicating | probing, after the follower's last slot |
/// | replicating | each new entry at once, within the window; a batch after an acknowledgement | replicating | probing |
/// | installing a snapshot | the snapshot, again after some heartbeats; heartbeats | replicating, if it covers the snapshot | probing, if the follower has the slots of the snapshot |
///
/// The leader begins to install a snapshot if it has compacted the entry before `next`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Progress {
    node: NodeId,
    /// The follower has the leader's log up to this slot.
    matched: Slot,
    state: ProgressState,
    heard_us: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum ProgressState {
    /// The leader searches for the last slot at which both logs agree.
    Probing { next: Slot },
    /// The leader sends entries before it has acknowledgements for earlier ones.
    Replicating { next: Slot },
    /// The follower stores a snapshot up to this slot.
    InstallingSnapshot { through: Slot, sent_us: u64 },
}
use ProgressState::{InstallingSnapshot, Probing, Replicating};

/// The event after which a leader may send to a follower.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Occasion {
    /// The leader has appended one entry.
    NewEntry,
    /// The follower has answered.
    Reply,
    /// A heartbeat is due.
    Heartbeat,
}

/// The next message of a leader to a follower.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NextSend {
    /// This many entries from a slot. Without entries it is a heartbeat.
    Entries { from: Slot, count: usize },
    /// The leader's snapshot.
    Snapshot,
}

/// The log of the leader: the last slot that its snapshot covers, and the last slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LogRange {
    pub(super) snapshot: Slot,
    pub(super) last: Slot,
}

impl Progress {
    pub(super) fn new(node: NodeId, last: Slot, now_us: u64) -> Self {
        Self { node, matched: Slot(0), state: Probing { next: last.next() }, heard_us: now_us }
    }

    pub(super) fn node(&self) -> NodeId {
        self.node
    }

    /// Returns the slot up to which the follower has the leader's log.
    pub(super) fn matched(&self) -> Slot {
        self.matched
    }

    /// Returns the time at which the leader last heard from the follower.
    pub(super) fn heard_us(&self) -> u64 {
        self.heard_us
    }

    pub(super) fn hear(&mut self, now_us: u64) {
        self.heard_us = now_us;
    }

    /// Handles an acknowledgement: the follower has the leader's log up to this slot.
    pub(super) fn acknowledge(&mut self, slot: Slot) {
        self.matched = self.matched.max(slot);
        let next = match self.state {
            InstallingSnapshot { through, .. } if self.matched < through => return,
            InstallingSnapshot { through, .. } => through.next(),
            Probing { next } | Replicating { next } => next,
        };
        self.state = Replicating { next: next.max(self.matched.next()) };
    }

    /// Handles a rejection: the follower has entries up to this slot at most. Returns whether the leader must send from
    /// another slot.
    pub(super) fn reject(&mut self, have: Slot) -> bool {
        let probing = Probing { next: have.max(self.matched).next() };
        let is_installing = matches!(self.state, InstallingSnapshot { through, .. } if have < through);
        let is_news = !is_installing && self.state != probing;
        if is_news {
            self.state = probing;
        }
        is_news
    }

    /// Returns the next message to the follower on an occasion, and assumes that the leader sends it.
    pub(super) fn next_send(
        &mut self,
        occasion: Occasion,
        log: LogRange,
        options: &Options,
        now_us: u64,
    ) -> Option<NextSend> {
        let (next, advances) = match self.state {
            InstallingSnapshot { sent_us, .. } => {
                let patience_us = options.heartbeat_us.saturating_mul(SNAPSHOT_HEARTBEATS);
                let is_late = now_us >= sent_us.saturating_add(patience_us);
                return match occasion {
                    Occasion::Heartbeat if is_late => Some(self.install(log, now_us)),
                    Occasion::Heartbeat => Some(NextSend::Entries { from: log.snapshot.next(), count: 0 }),
                    _ => None,
                };
            }
            Probing { .. } if occasion == Occasion::NewEntry => return None,
            Probing { next } => (next, false),
            Replicating { next } => {
                let has_room = next <= log.last && next.0 - self.matched.0 <= options.window;
                let is_next = occasion != Occasion::NewEntry || next == log.last;
                if occasion != Occasion::Heartbeat && !(has_room && is_next) {
                    return None;
                }
                (next, true)
            }
        };
        if next <= log.snapshot {
            return Some(self.install(log, now_us));
        }
        let missing = usize::try_from((log.last.0 + 1).saturating_sub(next.0)).unwrap_or(usize::MAX);
        let count = missing.min(options.batch);
        if advances {
            self.state = Replicating { next: Slot(next.0 + count as u64) };
        }
        Some(NextSend::Entries { from: next, count })
    }

    fn install(&mut self, log: LogRange, now_us: u64) -> NextSend {
        self.state = InstallingSnapshot { through: log.snapshot, sent_us: now_us };
        NextSend::Snapshot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: Options =
        Options { election_us: 1_000, heartbeat_us: 100, batch: 4, window: 6, undecided: 100, early: false };

    fn entries(from: u64, count: usize) -> NextSend {
        NextSend::Entries { from: Slot(from), count }
    }

    /// One follower of a leader whose log has these slots.
    struct Table {
        progress: Progress,
        log: LogRange,
        now_us: u64,
    }

    impl Table {
        fn new(snapshot: u64, last: u64) -> Self {
            let log = LogRange { snapshot: Slot(snapshot), last: Slot(last) };
            Self { progress: Progress::new(NodeId(1), log.last, 0), log, now_us: 0 }
        }

        fn on(&mut self, occasion: Occasion) -> Option<NextSend> {
            self.progress.next_send(occasion, self.log, &OPTIONS, self.now_us)
        }

        fn append(&mut self) -> Option<NextSend> {
            self.log.last = self.log.last.next();
            self.on(Occasion::NewEntry)
        }
    }

    #[test]
    fn a_probed_follower_receives_the_same_batch_until_it_answers() {
        let mut table = Table::new(0, 10);
        assert_eq!(table.append(), None);
        assert_eq!(table.on(Occasion::Heartbeat), Some(entries(11, 1)));
        assert_eq!(table.on(Occasion::Heartbeat), Some(entries(11, 1)));
        assert!(table.progress.reject(Slot(3)));
        assert_eq!(table.on(Occasion::Reply), Some(entries(4, 4)));
        assert!(!table.progress.reject(Slot(3)), "a repeated rejection is no news");
        table.progress.acknowledge(Slot(7));
        assert_eq!(table.on(Occasion::Reply), Some(entries(8, 4)));
        assert_eq!(table.on(Occasion::Reply), None, "all entries are on their way");
    }

    #[test]
    fn a_replicating_follower_receives_new_entries_within_the_window() {
        let mut table = Table::new(0, 2);
        table.progress.acknowledge(Slot(2));
        for slot in 3..=8 {
            assert_eq!(table.append(), Some(entries(slot, 1)));
        }
        assert_eq!(table.append(), None, "six entries are not acknowledged");
        assert_eq!(table.append(), None);
        table.progress.acknowledge(Slot(5));
        assert_eq!(table.on(Occasion::Reply), Some(entries(9, 2)));
        assert_eq!(table.on(Occasion::Heartbeat), Some(entries(11, 0)));
        assert!(table.progress.reject(Slot(4)), "a lost message");
        assert_eq!(table.on(Occasion::Reply), Some(entries(6, 4)), "what is acknowledged is not sent again");
    }

    #[test]
    fn a_snapshot_is_sent_once_until_its_acknowledgement_is_late() {
        let mut table = Table::new(20, 25);
        assert!(table.progress.reject(Slot(3)));
        assert_eq!(table.on(Occasion::Reply), Some(NextSend::Snapshot));
        assert!(!table.progress.reject(Slot(3)), "the follower does not have the snapshot yet");
        table.now_us = SNAPSHOT_HEARTBEATS * OPTIONS.heartbeat_us - 1;
        assert_eq!(table.on(Occasion::Heartbeat), Some(entries(21, 0)));
        assert_eq!(table.append(), None);
        table.progress.acknowledge(Slot(3));
        assert_eq!(table.on(Occasion::Reply), None, "an acknowledgement of earlier entries");
        table.now_us += 1;
        assert_eq!(table.on(Occasion::Heartbeat), Some(NextSend::Snapshot));
        table.progress.acknowledge(Slot(20));
        assert_eq!(table.on(Occasion::Reply), Some(entries(21, 4)));
    }

    #[test]
    fn a_follower_that_learns_the_slots_of_the_snapshot_elsewhere_needs_no_snapshot() {
        let mut table = Table::new(20, 25);
        assert!(table.progress.reject(Slot(3)));
        assert_eq!(table.on(Occasion::Reply), Some(NextSend::Snapshot));
        assert!(table.progress.reject(Slot(22)));
        assert_eq!(table.on(Occasion::Reply), Some(entries(23, 3)));
    }
}

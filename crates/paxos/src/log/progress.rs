//! A leader's view of one follower: its last matching slot, and the next message to it.

use super::Options;
use super::store::LogRange;
use crate::{NodeId, Slot};

/// The number of heartbeats without an answer after which a follower is silent.
const SILENT_HEARTBEATS: u64 = 3;
/// The number of heartbeats after which the acknowledgement of a snapshot is late.
const SNAPSHOT_HEARTBEATS: u64 = 4;
/// The maximum size of an entry in a probe, in bytes. A probe is repeated, so that it must be small.
const PROBE_BYTES: u64 = 1024;

/// A leader's view of a follower.
///
/// | state | the leader sends | acknowledgement | rejection |
/// |---|---|---|---|
/// | probing | a probe: at most the next entry, if it is small; with each heartbeat and after each rejection | replicating | probing, after the follower's last slot |
/// | replicating | new entries at once, within the window; after an acknowledgement, a heartbeat and an announcement the next batch, or an empty message | replicating | probing |
/// | replicating, silent | an empty message with each heartbeat | replicating | probing |
/// | installing a snapshot | an offer of the snapshot, and again after a rejection that comes later than some heartbeats; an empty message with each heartbeat | replicating, if it covers the snapshot | probing, if the follower has the slots of the snapshot |
///
/// The leader begins to install a snapshot after a rejection or an acknowledgement, if it has compacted the entry before
/// `next`. A silent follower, or one that is probed, thus receives one small message for each heartbeat.
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
    /// The follower fetches a snapshot up to this slot.
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
    /// Followers wait for the decided slot.
    Announcement,
}

/// The next message of a leader to a follower.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NextSend {
    /// This many entries from a slot. Without entries it is a heartbeat.
    Entries { from: Slot, count: usize },
    /// An offer of the leader's snapshot.
    Snapshot,
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

    /// Handles a rejection: the follower has entries up to this slot at most. Returns whether the leader may have to
    /// send something else.
    pub(super) fn reject(&mut self, have: Slot) -> bool {
        let probing = Probing { next: have.max(self.matched).next() };
        if matches!(self.state, InstallingSnapshot { through, .. } if have < through) {
            return true;
        }
        let is_news = self.state != probing;
        self.state = probing;
        is_news
    }

    /// Returns the next message to the follower on an occasion, and assumes that the leader sends it.
    pub(super) fn next_send(
        &mut self,
        occasion: Occasion,
        log: LogRange<'_>,
        options: &Options,
        now_us: u64,
    ) -> Option<NextSend> {
        let after_us = |heartbeats| options.heartbeat_us.saturating_mul(heartbeats);
        let is_silent = now_us > self.heard_us.saturating_add(after_us(SILENT_HEARTBEATS));
        match (self.state, occasion) {
            (InstallingSnapshot { sent_us, .. }, Occasion::Reply) => {
                let is_late = now_us >= sent_us.saturating_add(after_us(SNAPSHOT_HEARTBEATS));
                is_late.then(|| self.install(log, now_us))
            }
            (Probing { next } | Replicating { next }, Occasion::Reply) if next <= log.snapshot => {
                Some(self.install(log, now_us))
            }
            (InstallingSnapshot { .. }, Occasion::Heartbeat) => Some(empty(log.snapshot.next())),
            (Probing { next } | Replicating { next }, Occasion::Heartbeat) if next <= log.snapshot => {
                // The answer to this probe tells whether the follower needs the snapshot.
                self.state = Probing { next: log.snapshot.next() };
                Some(probe(log.snapshot.next(), log))
            }
            (Probing { next }, Occasion::Heartbeat | Occasion::Reply) => Some(probe(next, log)),
            (Replicating { next }, Occasion::Heartbeat) if is_silent => Some(empty(next)),
            (Replicating { next }, _) if !is_silent && next > log.snapshot => {
                self.replicate(next, occasion, log, options)
            }
            _ => None,
        }
    }

    /// Returns the next entries within the window, or an empty message on the occasions that require one.
    fn replicate(
        &mut self,
        next: Slot,
        occasion: Occasion,
        log: LogRange<'_>,
        options: &Options,
    ) -> Option<NextSend> {
        let in_flight = next.0 - self.matched.0 - 1;
        let has_room = in_flight < options.window && log.bytes(self.matched, next) < options.window_bytes;
        // An entry behind unsent ones waits for their acknowledgements.
        let is_next = occasion != Occasion::NewEntry || next == log.last;
        let count = if has_room && is_next { log.count(next, options.batch, options.batch_bytes) } else { 0 };
        if count > 0 {
            self.state = Replicating { next: Slot(next.0 + count as u64) };
        }
        let is_due = count > 0 || matches!(occasion, Occasion::Heartbeat | Occasion::Announcement);
        is_due.then_some(NextSend::Entries { from: next, count })
    }

    fn install(&mut self, log: LogRange<'_>, now_us: u64) -> NextSend {
        self.state = InstallingSnapshot { through: log.snapshot, sent_us: now_us };
        NextSend::Snapshot
    }
}

fn empty(from: Slot) -> NextSend {
    NextSend::Entries { from, count: 0 }
}

fn probe(from: Slot, log: LogRange<'_>) -> NextSend {
    let is_small = log.bytes(Slot(from.0 - 1), from.next()) <= PROBE_BYTES;
    NextSend::Entries { from, count: if is_small { log.count(from, 1, PROBE_BYTES) } else { 0 } }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: Options = Options {
        election_us: 1_000,
        heartbeat_us: 100,
        batch: 4,
        batch_bytes: 3_000,
        window: 6,
        window_bytes: 5_000,
        undecided: 100,
        early: false,
    };

    fn entries(from: u64, count: usize) -> NextSend {
        NextSend::Entries { from: Slot(from), count }
    }

    /// One follower of a leader whose log has these slots.
    struct Table {
        progress: Progress,
        snapshot: Slot,
        /// The cumulative sizes of the entries after the snapshot.
        ends: Vec<u64>,
        now_us: u64,
    }

    impl Table {
        fn new(snapshot: u64, last: u64) -> Self {
            let ends = (1..=last - snapshot).map(|at| at * 100).collect();
            let progress = Progress::new(NodeId(1), Slot(last), 0);
            Self { progress, snapshot: Slot(snapshot), ends, now_us: 0 }
        }

        fn on(&mut self, occasion: Occasion) -> Option<NextSend> {
            let log = LogRange::new(self.snapshot, &self.ends);
            self.progress.next_send(occasion, log, &OPTIONS, self.now_us)
        }

        /// Appends an entry of this size.
        fn append(&mut self, bytes: u64) -> Option<NextSend> {
            self.ends.push(self.ends.last().copied().unwrap_or_default() + bytes);
            self.on(Occasion::NewEntry)
        }

        fn acknowledge(&mut self, slot: u64) -> Option<NextSend> {
            self.progress.hear(self.now_us);
            self.progress.acknowledge(Slot(slot));
            self.on(Occasion::Reply)
        }

        fn reject(&mut self, have: u64) -> Option<NextSend> {
            self.progress.hear(self.now_us);
            if self.progress.reject(Slot(have)) { self.on(Occasion::Reply) } else { None }
        }

        fn compact(&mut self, through: u64) {
            let dropped = usize::try_from(through - self.snapshot.0).unwrap();
            let bytes = self.ends.drain(..dropped).next_back().unwrap();
            self.ends.iter_mut().for_each(|end| *end -= bytes);
            self.snapshot = Slot(through);
        }
    }

    #[test]
    fn a_probed_follower_receives_one_small_message_until_it_answers() {
        let mut table = Table::new(0, 10);
        assert_eq!(table.append(100), None);
        assert_eq!(table.on(Occasion::Announcement), None);
        assert_eq!(table.on(Occasion::Heartbeat), Some(entries(11, 1)));
        assert_eq!(table.on(Occasion::Heartbeat), Some(entries(11, 1)));
        assert_eq!(table.reject(3), Some(entries(4, 1)));
        assert_eq!(table.reject(3), None, "a repeated rejection is no news");
        assert_eq!(table.acknowledge(4), Some(entries(5, 4)), "entries flow after an acknowledgement");
        assert_eq!(table.acknowledge(8), Some(entries(9, 3)));
        assert_eq!(table.acknowledge(11), None);
    }

    #[test]
    fn a_long_entry_is_not_part_of_a_probe() {
        let mut table = Table::new(0, 10);
        table.append(PROBE_BYTES + 1);
        assert_eq!(table.on(Occasion::Heartbeat), Some(entries(11, 0)));
        assert_eq!(table.acknowledge(10), Some(entries(11, 1)));
    }

    #[test]
    fn a_replicating_follower_receives_new_entries_within_the_window() {
        let mut table = Table::new(0, 2);
        assert_eq!(table.acknowledge(2), None);
        for slot in 3..=8 {
            assert_eq!(table.append(100), Some(entries(slot, 1)));
        }
        assert_eq!(table.append(100), None, "six entries are not acknowledged");
        assert_eq!(table.append(100), None);
        assert_eq!(
            table.on(Occasion::Heartbeat),
            Some(entries(9, 0)),
            "a heartbeat does not exceed the window"
        );
        assert_eq!(table.acknowledge(5), Some(entries(9, 2)));
        assert_eq!(table.on(Occasion::Heartbeat), Some(entries(11, 0)));
        assert_eq!(table.on(Occasion::Announcement), Some(entries(11, 0)));
        assert_eq!(
            table.reject(4),
            Some(entries(6, 1)),
            "a lost message: acknowledged entries are not sent again"
        );
    }

    #[test]
    fn messages_and_the_window_are_limited_in_bytes() {
        let mut table = Table::new(0, 2);
        assert_eq!(table.acknowledge(2), None);
        assert_eq!(table.append(4_000), Some(entries(3, 1)), "a single entry may be longer than a message");
        assert_eq!(table.append(1_000), Some(entries(4, 1)));
        assert_eq!(table.append(1_000), None, "5000 bytes are not acknowledged");
        for _ in 0..3 {
            assert_eq!(table.append(1_000), None);
        }
        assert_eq!(table.acknowledge(3), Some(entries(5, 3)), "3000 bytes fit into a message");
        assert_eq!(table.acknowledge(4), Some(entries(8, 1)));
    }

    #[test]
    fn a_silent_follower_receives_empty_heartbeats() {
        let mut table = Table::new(0, 2);
        assert_eq!(table.acknowledge(2), None);
        assert_eq!(table.append(100), Some(entries(3, 1)));
        table.now_us = SILENT_HEARTBEATS * OPTIONS.heartbeat_us;
        assert_eq!(table.append(100), Some(entries(4, 1)), "it is not silent yet");
        table.now_us += 1;
        assert_eq!(table.append(100), None);
        assert_eq!(table.on(Occasion::Announcement), None);
        assert_eq!(table.on(Occasion::Heartbeat), Some(entries(5, 0)));
        assert_eq!(table.acknowledge(4), Some(entries(5, 1)), "an answer ends the silence");
    }

    #[test]
    fn a_snapshot_is_sent_again_only_to_a_follower_that_answers() {
        let mut table = Table::new(20, 25);
        assert_eq!(table.reject(3), Some(NextSend::Snapshot));
        assert_eq!(table.reject(3), None, "the follower does not have the snapshot yet");
        table.now_us = SNAPSHOT_HEARTBEATS * OPTIONS.heartbeat_us - 1;
        assert_eq!(table.on(Occasion::Heartbeat), Some(entries(21, 0)));
        assert_eq!((table.append(100), table.on(Occasion::Announcement)), (None, None));
        assert_eq!(table.acknowledge(3), None, "an acknowledgement of earlier entries");
        table.now_us += 1;
        assert_eq!(table.on(Occasion::Heartbeat), Some(entries(21, 0)), "the follower is silent");
        assert_eq!(table.reject(3), Some(NextSend::Snapshot));
        assert_eq!(table.acknowledge(20), Some(entries(21, 4)));
    }

    #[test]
    fn a_silent_follower_whose_entries_are_compacted_is_probed_first() {
        for replicates in [false, true] {
            let mut table = Table::new(0, 25);
            if replicates {
                table.acknowledge(3);
            }
            table.reject(3);
            table.compact(20);
            table.now_us = 1_000;
            assert_eq!(table.on(Occasion::Announcement), None);
            assert_eq!(table.on(Occasion::Heartbeat), Some(entries(21, 1)));
            assert_eq!(table.on(Occasion::Heartbeat), Some(entries(21, 1)));
            assert_eq!(table.reject(3), Some(NextSend::Snapshot));
        }
    }

    #[test]
    fn a_follower_that_learns_the_slots_of_the_snapshot_elsewhere_needs_no_snapshot() {
        let mut table = Table::new(20, 25);
        assert_eq!(table.reject(3), Some(NextSend::Snapshot));
        assert_eq!(table.reject(22), Some(entries(23, 1)));
    }
}

//! Upkeep of a council: compacts it before it is full, and sends the snapshot to acceptors that lack it.
//!
//! A device that proposes an operation adds a compaction when one is due. A device without an operation leaves the
//! compaction to others for a while. Each acceptor reports the last slot of its snapshot. If this is before the
//! last compaction, a device that has the snapshot sends it: first the device that had the compaction decided, and
//! if that does not help, any other device.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdoff_paxos::{NodeId, Slot};

use super::learning::is_majority;
use super::{Device, Out};
use crate::machine::{AcceptorInfo, Machine};
use crate::{AcceptorRequest, Applied, CouncilSnapshot, OperationId, SlotValue};

/// The knowledge of a device about the size of the council, and about the acceptors that lack its snapshot.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    /// The bytes of values since the last compaction, as far as this process has applied them.
    bytes: usize,
    /// Whether an acceptor has refused a slot since the last compaction because the council has reached its quota.
    is_full: bool,
    /// Whether an acceptor lacks the snapshot and this device does not have it. Another compaction then creates a
    /// new one.
    is_missing: bool,
    /// The compaction that this device has requested, and the time for the next request.
    wanted: Option<OperationId>,
    compact: Schedule,
    /// The snapshot of the last compaction, if this device has it, and whether this device had the compaction
    /// decided.
    snapshot: Option<CouncilSnapshot>,
    is_mine: bool,
    send_snapshot: Schedule,
    /// The last slot of the snapshot of each acceptor, as reported.
    floors: BTreeMap<NodeId, Slot>,
    /// The acceptors that are full, and the time to send them a snapshot.
    full: BTreeSet<NodeId>,
    send_to_full: Schedule,
}

/// The time of this device's next turn, and the number of turns so far.
#[derive(Debug, Default)]
struct Schedule {
    at_us: Option<u64>,
    times: u32,
}

impl Schedule {
    fn has_come(&self, now_us: u64) -> bool {
        self.at_us.is_some_and(|at_us| at_us <= now_us)
    }
}

impl Upkeep {
    pub(super) fn wakes_at_us(&self) -> Option<u64> {
        [self.compact.at_us, self.send_snapshot.at_us, self.send_to_full.at_us].into_iter().flatten().min()
    }

    /// Notes that a slot was applied.
    pub(super) fn applied(&mut self, value: &SlotValue, applied: &Applied) {
        self.bytes = self.bytes.saturating_add(value.len());
        self.send_to_full.times = 0;
        if applied.compacts {
            self.begin_anew();
        }
    }

    /// Stores the snapshot of the compaction that was just applied.
    pub(super) fn has_compacted(&mut self, snapshot: CouncilSnapshot) {
        self.snapshot = Some(snapshot);
    }

    /// Notes that a snapshot was installed. The device keeps it only if it is the snapshot of a compaction, because
    /// all devices agree on such a snapshot.
    pub(super) fn installed(&mut self, snapshot: &CouncilSnapshot, compacted: Slot) {
        self.begin_anew();
        self.snapshot = Some(snapshot.clone()).filter(|snapshot| snapshot.slot == compacted);
    }

    fn begin_anew(&mut self) {
        let floors = std::mem::take(&mut self.floors);
        *self = Self { floors, ..Self::default() };
    }

    /// Notes an acceptor's report of the last slot of its snapshot.
    pub(super) fn has_floor(&mut self, acceptor: NodeId, floor: Slot) {
        let known = self.floors.entry(acceptor).or_default();
        *known = floor.max(*known);
    }

    /// Removes the nodes that are not acceptors any more.
    pub(super) fn tidy(&mut self, acceptors: &BTreeMap<NodeId, AcceptorInfo>) {
        self.floors.retain(|id, _| acceptors.contains_key(id));
        self.full.retain(|id| acceptors.contains_key(id));
    }

    fn lacks(&self, acceptor: &NodeId, slot: Slot) -> bool {
        self.floors.get(acceptor).is_some_and(|floor| *floor < slot)
    }
}

impl<M: Machine> Device<M> {
    pub(super) fn run_upkeep(&mut self, out: &mut Out<'_, M::Change>) {
        self.send_snapshot(out);
        self.send_to_full(out);
        self.compact_in_time(out);
    }

    /// Requests a compaction if one is due: at once if other operations are pending, otherwise after other devices
    /// had time to do so.
    fn compact_in_time(&mut self, out: &mut Out<'_, M::Change>) {
        if !self.is_compaction_due() {
            self.upkeep.compact = Schedule::default();
            return;
        }
        if self.upkeep.wanted.is_some_and(|id| self.pending.contains_key(&id)) {
            self.upkeep.compact.at_us = None;
            return;
        }
        let is_busy = self.has_pending();
        let turn = &mut self.upkeep.compact;
        let is_now = turn.has_come(out.now_us) || (is_busy && turn.times <= 1);
        if !is_now && turn.at_us.is_some() {
            return;
        }
        turn.times = turn.times.saturating_add(1);
        turn.at_us = Some(out.later(&self.options.upkeep, turn.times, Duration::ZERO));
        if is_now && let Some(change) = self.state.machine().compaction(self.state.applied()) {
            self.counts.compactions += 1;
            self.upkeep.wanted = self.submit_internal(change, out);
        }
    }

    fn is_compaction_due(&self) -> bool {
        let slots = self.state.applied().0 - self.state.compacted().0;
        let is_much = slots >= self.options.compact_slots || self.upkeep.bytes >= self.options.compact_bytes;
        let is_due = slots > 0 && (is_much || self.upkeep.is_full || self.upkeep.is_missing);
        is_due && self.state.machine().may_propose(&self.signer.public())
    }

    /// Notes that this device had a compaction decided. It is the first to send the snapshot.
    pub(super) fn send_snapshot_now(&mut self, out: &Out<'_, M::Change>) {
        for acceptor in self.state.machine().acceptors().keys() {
            self.upkeep.floors.entry(*acceptor).or_default();
        }
        self.upkeep.is_mine = true;
        self.upkeep.send_snapshot.at_us = Some(out.now_us);
    }

    /// Returns whether this device had a compaction decided and no majority is known to have its snapshot yet.
    pub(super) fn has_snapshot_to_send(&self) -> bool {
        if !self.upkeep.is_mine {
            return false;
        }
        let compacted = self.state.compacted();
        let has_it = self.upkeep.floors.iter().filter(|(_, floor)| **floor >= compacted);
        let has_it: BTreeSet<_> = has_it.map(|(id, _)| *id).collect();
        let is_kept = self.state.configuration().is_some_and(|these| is_majority(&has_it, &these));
        !is_kept
    }

    /// Sends the snapshot of the last compaction to the acceptors that lack it, and repeats this for as long as
    /// they do.
    fn send_snapshot(&mut self, out: &mut Out<'_, M::Change>) {
        let wanted = self.furthest_floor();
        let acceptors = self.state.machine().acceptors().keys();
        let lack_it: Vec<_> = acceptors.filter(|id| self.upkeep.lacks(id, wanted)).copied().collect();
        let is_urgent = self.has_snapshot_to_send();
        let turn = &mut self.upkeep.send_snapshot;
        if lack_it.is_empty() {
            *turn = Schedule::default();
            return;
        }
        let is_now = turn.has_come(out.now_us);
        if !is_now && turn.at_us.is_some() {
            return;
        }
        turn.times = turn.times.saturating_add(1);
        let times = turn.times;
        let again_us = if is_urgent {
            self.retransmit_at(times, out)
        } else {
            out.later(&self.options.upkeep, times, Duration::ZERO)
        };
        self.upkeep.send_snapshot.at_us = Some(again_us);
        if !is_now {
            return;
        }
        let is_compaction = wanted == self.state.compacted();
        let snapshot = if is_compaction { self.upkeep.snapshot.clone() } else { Some(self.state.snapshot()) };
        let Some(snapshot) = snapshot else {
            self.upkeep.is_missing = true;
            return;
        };
        self.counts.snapshots_sent += 1;
        // An acceptor that stores the snapshot deletes the slots, so this device must first have their result on
        // disk.
        for to in lack_it {
            out.request_when_stored(to, AcceptorRequest::Compact { snapshot: snapshot.clone() });
        }
    }

    /// Returns the slot that all snapshots should reach: the last compaction, or the snapshot of a full acceptor if
    /// that is later. Such an acceptor can no longer report the votes up to its snapshot, so the others must be
    /// able to report the resulting state.
    fn furthest_floor(&self) -> Slot {
        let (applied, compacted) = (self.state.applied(), self.state.compacted());
        let acceptors = self.state.machine().acceptors().keys();
        let floors = acceptors.filter_map(|id| self.upkeep.floors.get(id)).copied();
        floors.filter(|floor| *floor <= applied).max().unwrap_or_default().max(compacted)
    }

    /// Processes the refusal of a slot by an acceptor at which the council has reached its quota.
    pub(super) fn is_full_at(&mut self, acceptor: NodeId, out: &mut Out<'_, M::Change>) {
        if !self.state.machine().acceptors().contains_key(&acceptor) {
            return;
        }
        self.upkeep.is_full = true;
        self.upkeep.full.insert(acceptor);
        if self.upkeep.send_to_full.at_us.is_none() {
            let turn = &mut self.upkeep.send_to_full;
            turn.times = turn.times.saturating_add(1);
            let floor = Duration::from_micros(self.round_trip.estimate_us() * 2);
            turn.at_us = Some(out.later(&self.options.policy, turn.times, floor));
        }
    }

    /// Sends a snapshot of the applied state to the full acceptors.
    ///
    /// A full acceptor cannot take part in the decision about a compaction. All slots that this device has applied
    /// are decided, so an acceptor may replace them by a snapshot, as after a compaction. A full council decides no
    /// slots, so all devices that are up to date send the same snapshot. The acceptors then have room for a
    /// compaction, on which all devices agree.
    fn send_to_full(&mut self, out: &mut Out<'_, M::Change>) {
        if !self.upkeep.send_to_full.has_come(out.now_us) {
            return;
        }
        self.upkeep.send_to_full.at_us = None;
        let applied = self.state.applied();
        let mut full = std::mem::take(&mut self.upkeep.full);
        full.retain(|id| self.upkeep.floors.get(id).is_none_or(|floor| *floor < applied));
        if full.is_empty() || applied == Slot(0) {
            return;
        }
        self.counts.snapshots_sent += 1;
        let snapshot = self.state.snapshot();
        for to in full {
            out.request_when_stored(to, AcceptorRequest::Compact { snapshot: snapshot.clone() });
        }
    }
}

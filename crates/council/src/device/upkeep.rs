//! Upkeep of a council: compacts it before it is full, and sends the snapshot to acceptors that lack it.
//!
//! A device that proposes an operation adds a compaction when one is due. A device without an operation leaves the
//! compaction to others for a while. Each acceptor reports the last slot of its snapshot. If this is before the
//! last compaction, every device endorses the snapshot there, and a device that has it sends it: first the device that
//! had the compaction decided, and if that does not help, any other device.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdoff_paxos::{NodeId, Slot};

use super::learning::is_majority;
use super::{Device, Out};
use crate::machine::{AcceptorInfo, Machine};
use crate::{AcceptorReport, AcceptorRequest, Applied, CouncilSnapshot, Endorsement, OperationId, SlotValue};

/// The knowledge of a device about the size of the council, and about the acceptors that lack its snapshot.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    /// The bytes of values since the last compaction, as far as this process has applied them.
    bytes: usize,
    /// Whether an acceptor with the snapshot of the last compaction has refused a slot because the council has reached its
    /// quota.
    is_full: bool,
    /// Whether the acceptors lack the snapshot and this device does not have it. Another compaction then creates a
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
    /// The time to request the snapshot of an acceptor for those that have an older one.
    spread: Schedule,
    /// The report of each acceptor with the latest snapshot.
    reports: BTreeMap<NodeId, AcceptorReport>,
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
        let turns = [&self.compact, &self.send_snapshot, &self.spread];
        turns.into_iter().filter_map(|turn| turn.at_us).min()
    }

    /// Notes that a slot was applied.
    pub(super) fn applied(&mut self, value: &SlotValue, applied: &Applied) {
        self.bytes = self.bytes.saturating_add(value.len());
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
        let reports = std::mem::take(&mut self.reports);
        *self = Self { reports, ..Self::default() };
    }

    /// Notes an acceptor's report. An earlier report may arrive after a later one.
    pub(super) fn note_report(&mut self, acceptor: NodeId, report: AcceptorReport) {
        let known = self.reports.entry(acceptor).or_default();
        if report.floor >= known.floor {
            *known = report;
        }
    }

    /// Removes the nodes that are not acceptors any more.
    pub(super) fn tidy(&mut self, acceptors: &BTreeMap<NodeId, AcceptorInfo>) {
        self.reports.retain(|id, _| acceptors.contains_key(id));
    }

    /// Returns the requested compaction if the council is full: no other operation has room.
    pub(super) fn urgent_compaction(&self) -> Option<OperationId> {
        self.wanted.filter(|_| self.is_full)
    }
}

impl<M: Machine> Device<M> {
    pub(super) fn run_upkeep(&mut self, out: &mut Out<'_, M::Change>) {
        self.send_snapshot(out);
        self.spread_snapshot(out);
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
        // Until a majority of the members has endorsed the last compaction, another one would only add to the work, unless
        // the members have changed since.
        let is_possible = self.state.access() >= self.state.compacted()
            || self.has_majority(|report, compacted| report.floor >= compacted);
        let is_needed = is_possible && (is_much || self.upkeep.is_full);
        let is_due = slots > 0 && (is_needed || self.upkeep.is_missing);
        is_due && self.state.machine().may_propose(&self.signer.public())
    }

    /// Notes that this device had a compaction decided. It is the first to send the snapshot.
    pub(super) fn send_snapshot_now(&mut self, out: &Out<'_, M::Change>) {
        for acceptor in self.state.machine().acceptors().keys() {
            self.upkeep.reports.entry(*acceptor).or_default();
        }
        self.upkeep.is_mine = true;
        self.upkeep.send_snapshot.at_us = Some(out.now_us);
    }

    /// Returns whether this device had a compaction decided and no majority is known to have its snapshot yet. The
    /// acceptors may still lack endorsements of other members.
    pub(super) fn has_snapshot_to_send(&self) -> bool {
        let digest = self.state.compacted_digest();
        let has_it =
            |report: &AcceptorReport, compacted| report.floor >= compacted || report.offered == digest;
        self.upkeep.is_mine && !self.has_majority(has_it)
    }

    /// Returns whether a majority of the acceptors has reported that this holds for the last compaction.
    fn has_majority(&self, holds: impl Fn(&AcceptorReport, Slot) -> bool) -> bool {
        let compacted = self.state.compacted();
        let these = self.upkeep.reports.iter().filter(|(_, report)| holds(report, compacted));
        let these: BTreeSet<_> = these.map(|(id, _)| *id).collect();
        self.state.configuration().is_some_and(|configuration| is_majority(&these, &configuration))
    }

    /// Endorses the snapshot of the last compaction at an acceptor that has not stored it, unless this device has endorsed
    /// it there.
    pub(super) fn endorse_compaction(&self, at: NodeId, out: &mut Out<'_, M::Change>) {
        let (slot, digest) = (self.state.compacted(), self.state.compacted_digest());
        let Some(report) = self.upkeep.reports.get(&at) else { return };
        let is_needed = report.floor < slot && report.endorsed != digest;
        if !is_needed || !self.state.machine().may_propose(&self.signer.public()) {
            return;
        }
        let access = self.state.access_at(slot);
        // An acceptor that stores the snapshot deletes the slots, so this device must first have their result on disk.
        let endorsement = Endorsement::sign(self.state.council(), slot, digest, access, &*self.signer);
        out.request_when_stored(at, AcceptorRequest::Endorse(endorsement));
    }

    /// Endorses the snapshot of the compaction that was just applied.
    pub(super) fn endorse_at_all(&self, out: &mut Out<'_, M::Change>) {
        for acceptor in self.upkeep.reports.keys() {
            self.endorse_compaction(*acceptor, out);
        }
    }

    /// Requests a snapshot of an acceptor, if others have an older one.
    fn spread_snapshot(&mut self, out: &mut Out<'_, M::Change>) {
        let floors = || self.upkeep.reports.values().map(|report| report.floor);
        let oldest = floors().min();
        if floors().max() == oldest {
            self.upkeep.spread = Schedule::default();
            return;
        }
        let turn = &mut self.upkeep.spread;
        let is_now = turn.has_come(out.now_us);
        if !is_now && turn.at_us.is_some() {
            return;
        }
        turn.times = turn.times.saturating_add(1);
        turn.at_us = Some(out.later(&self.options.upkeep, turn.times, Duration::ZERO));
        let times = turn.times as usize;
        let holders = self.upkeep.reports.iter().filter(|(_, report)| Some(report.floor) > oldest);
        // Another one at each turn: the acceptor with the latest may be lost.
        if is_now && let Some((at, _)) = holders.cycle().nth(times) {
            out.request(*at, AcceptorRequest::Snapshot { offered: None });
        }
    }

    /// Passes a snapshot that an acceptor has stored on to those whose snapshot is older.
    ///
    /// A device that is far behind needs the same snapshot from a majority of the acceptors, and may be needed itself for a
    /// majority of the members that endorse a later one.
    pub(super) fn pass_on(
        &self,
        snapshot: &CouncilSnapshot,
        certificate: &[Endorsement],
        out: &mut Out<'_, M::Change>,
    ) {
        let lacks_it = |(_, report): &(&NodeId, &AcceptorReport)| report.floor < snapshot.slot;
        for (to, _) in self.upkeep.reports.iter().filter(lacks_it).filter(|_| !certificate.is_empty()) {
            let (snapshot, certificate) = (snapshot.clone(), certificate.to_vec());
            out.request(*to, AcceptorRequest::Compact { snapshot, certificate });
        }
    }

    /// Sends the snapshot of the last compaction to the acceptors that lack it, and repeats this for as long as
    /// they do.
    fn send_snapshot(&mut self, out: &mut Out<'_, M::Change>) {
        let (compacted, digest) = (self.state.compacted(), self.state.compacted_digest());
        let lacks_it = |report: &AcceptorReport| report.floor < compacted && report.offered != digest;
        let lack_it = self.upkeep.reports.iter().filter(|(_, report)| lacks_it(report));
        let lack_it: Vec<_> = lack_it.map(|(id, _)| *id).collect();
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
        let Some(snapshot) = &self.upkeep.snapshot else {
            // An acceptor that has the snapshot can pass it on.
            self.upkeep.is_missing = self.upkeep.reports.values().all(|report| report.floor < compacted);
            return;
        };
        self.counts.snapshots_sent += 1;
        for to in lack_it {
            let (snapshot, certificate) = (snapshot.clone(), Vec::new());
            out.request_when_stored(to, AcceptorRequest::Compact { snapshot, certificate });
        }
    }

    /// Processes the refusal of a slot by an acceptor at which the council has reached its quota. Acceptors have room for a
    /// compaction then. An acceptor that lacks the last one needs its snapshot instead.
    pub(super) fn is_full_at(&mut self, acceptor: NodeId) {
        self.round.is_full = true;
        let report = self.upkeep.reports.get(&acceptor);
        self.upkeep.is_full |= report.is_none_or(|report| report.floor >= self.state.compacted());
    }

    /// Returns whether this device has the snapshot of the last compaction, and no majority of the acceptors has stored
    /// it. The device then keeps it on its disk, too.
    pub(super) fn holds_snapshot(&self) -> bool {
        self.upkeep.snapshot.is_some() && !self.has_majority(|report, compacted| report.floor >= compacted)
    }
}

//! Learning the decisions: from votes, from histories and from snapshots.
//!
//! # Decisions that a later value implies
//!
//! The author of a value has applied every slot before it, and signs the hash of the history up to there. So a
//! single value of a member for the next slot, accepted or not, shows the decision of this slot. This helps a
//! device that cannot count a majority of the acceptors that decided the slot, because they were replaced since or
//! have lost their disks. An acceptor cannot forge this proof: it cannot sign for a member.
//!
//! The proof holds only as long as no member proposes a value on top of an undecided one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdoff_paxos::slot::{Learner, Vote};
use holdoff_paxos::{Configuration, NodeId, Slot, Tally};

use super::round::Phase;
use super::{Device, Out, Output, Record, Round};
use crate::machine::Machine;
use crate::{AcceptorReport, AcceptorRequest, CouncilSnapshot, CouncilState, Digest, SlotValue};

/// The reports about slots that this device has not applied yet.
#[derive(Debug, Default)]
pub(super) struct Learning {
    votes: BTreeMap<Slot, BTreeMap<NodeId, Vec<Vote<SlotValue>>>>,
    /// The highest slot in which an acceptor has reported an accepted value.
    latest: Slot,
    poll_us: u64,
    /// The acceptors that report the next slot to be only in this snapshot.
    snapshots: BTreeMap<(Slot, Digest), BTreeSet<NodeId>>,
    /// Whether this device created the last value.
    was_mine: bool,
}

/// The number of slots ahead for which the device keeps votes, and the number of votes of each acceptor in each
/// slot.
const AHEAD: u64 = 128;
const OF_EACH: usize = 4;
/// The number of reported snapshots that the device tracks at a time.
const SNAPSHOTS: usize = 16;

/// Returns whether these acceptors contain a majority of the current configuration. The configuration may have
/// changed since they reported.
pub(crate) fn is_majority(reporters: &BTreeSet<NodeId>, configuration: &Configuration) -> bool {
    let mut tally = Tally::default();
    for node in reporters {
        tally.count(*node, configuration);
    }
    tally.is_quorum(configuration)
}

impl Learning {
    pub(super) fn poll_us(&self) -> u64 {
        self.poll_us
    }

    pub(super) fn may_be_behind(&mut self, latest: Slot) {
        self.latest = self.latest.max(latest);
    }

    pub(super) fn is_behind(&self, applied: Slot) -> bool {
        self.latest > applied
    }

    pub(super) fn was_mine(&self) -> bool {
        self.was_mine
    }

    /// Iterates over the values that acceptors have accepted in this slot, as far as they were reported to this
    /// device.
    pub(super) fn accepted_in(&self, slot: Slot) -> impl Iterator<Item = &SlotValue> {
        let votes = self.votes.get(&slot).into_iter().flat_map(BTreeMap::values).flatten();
        votes.map(|vote| &vote.value)
    }

    fn keep(&mut self, from: NodeId, slot: Slot, vote: Vote<SlotValue>, applied: Slot) {
        if slot <= applied || slot.0 > applied.0 + AHEAD {
            return;
        }
        let of_one = self.votes.entry(slot).or_default().entry(from).or_default();
        if of_one.iter().all(|known| known.ballot != vote.ballot) {
            of_one.push(vote);
            if of_one.len() > OF_EACH {
                of_one.remove(0);
            }
        }
    }
}

impl<M: Machine> Device<M> {
    /// Processes the reported votes of an acceptor.
    pub(super) fn votes(
        &mut self,
        from: NodeId,
        votes: impl IntoIterator<Item = (Slot, Vote<SlotValue>)>,
        out: &mut Out<'_, M::Change>,
    ) {
        for (slot, vote) in votes {
            self.learning.may_be_behind(slot);
            self.learning.keep(from, slot, vote, self.state.applied());
        }
        self.learn(out);
    }

    /// Applies every next slot whose votes show the chosen value.
    fn learn(&mut self, out: &mut Out<'_, M::Change>) {
        while let Some(value) = self.chosen_next() {
            self.learned(value, out);
        }
    }

    fn chosen_next(&mut self) -> Option<SlotValue> {
        let slot = self.state.applied().next();
        let mut learner = Learner::new(self.state.configuration()?);
        let votes = self.learning.votes.get(&slot)?;
        let votes = votes.iter().flat_map(|(from, votes)| votes.iter().map(move |vote| (*from, vote)));
        let mut chosen = None;
        for (from, vote) in votes {
            chosen = chosen.or_else(|| learner.accepted(from, vote.ballot, vote.value.clone()));
        }
        let value = chosen.map(|vote| vote.value).or_else(|| self.implied_decision(slot))?;
        if !self.is_genuine(slot, &value) {
            self.learning.votes.remove(&slot);
            return None;
        }
        Some(value)
    }

    /// Applies the decided value of the next slot, and moves on to the slot after it.
    pub(super) fn learned(&mut self, value: SlotValue, out: &mut Out<'_, M::Change>) {
        let slot = self.state.applied().next();
        if let Phase::Accepting(accepting, ..) = &self.round.phase {
            let own = accepting.value().author == self.signer.public();
            let is_lost = own && accepting.value().digest() != value.digest();
            self.counts.lost_slots += u64::from(is_lost);
        }
        let applied = self.state.apply(&value, &*self.verifier);
        self.learning.was_mine = value.author == self.signer.public();
        self.counts.slots += 1;
        self.counts.own_slots += u64::from(self.learning.was_mine);
        self.upkeep.applied(&value, &applied);
        out.store_later(Record::Applied { slot, value });
        let compacts = applied.compacts;
        out.emit(Output::Applied(applied));
        let is_due = slot.0 - self.stored.0 >= self.options.store_every;
        if compacts || (is_due && !self.holds_snapshot()) {
            self.store_state(compacts, out);
        }
        self.round = Round::new(slot.next());
        self.move_on(out);
    }

    fn store_state(&mut self, compacts: bool, out: &mut Out<'_, M::Change>) {
        let snapshot = self.state.snapshot();
        self.stored = snapshot.slot;
        if compacts {
            self.upkeep.has_compacted(snapshot.clone());
            if self.learning.was_mine {
                self.send_snapshot_now(out);
            }
            self.endorse_at_all(out);
        }
        out.store_later(Record::Snapshot(snapshot));
    }

    /// Removes the data of applied slots, and checks the pending operations against the new state.
    fn move_on(&mut self, out: &mut Out<'_, M::Change>) {
        let applied = self.state.applied();
        self.learning.votes = self.learning.votes.split_off(&applied.next());
        self.learning.snapshots.retain(|(slot, _), _| *slot > applied);
        self.announced.tidy(&self.state);
        self.used.tidy(applied.next());
        self.upkeep.tidy(self.state.machine().acceptors());
        self.resolve(out);
    }

    /// Processes the history that an acceptor reports.
    pub(super) fn history(
        &mut self,
        from: NodeId,
        votes: Vec<(Slot, Vote<SlotValue>)>,
        latest: Slot,
        out: &mut Out<'_, M::Change>,
    ) {
        let before = self.state.applied();
        self.learning.may_be_behind(latest);
        self.votes(from, votes, out);
        let applied = self.state.applied();
        if applied > before && latest > applied {
            // The acceptor has more slots, and fetching makes progress.
            self.fetch(out);
        } else if latest > applied && self.round.is_idle() {
            // Acceptors have voted, but their votes do not show the decision. If this does not change, the device
            // proposes.
            self.wait_after_preemption(out);
        }
    }

    pub(super) fn poll(&mut self, out: &mut Out<'_, M::Change>) {
        if self.learning.poll_us <= out.now_us {
            self.fetch(out);
        }
    }

    fn fetch(&mut self, out: &mut Out<'_, M::Change>) {
        self.learning.poll_us = out.later(&self.options.polling, 1, Duration::ZERO);
        let after = self.state.applied();
        for acceptor in self.state.machine().acceptors().keys() {
            out.request(*acceptor, AcceptorRequest::Fetch { after });
        }
    }

    /// Processes an acceptor's report of its snapshot, and of what it knows about the members.
    pub(super) fn reported(&mut self, from: NodeId, report: AcceptorReport, out: &mut Out<'_, M::Change>) {
        let Some(configuration) = self.state.configuration() else { return };
        if configuration.contains(from) {
            self.upkeep.note_report(from, report);
            self.report_access(from, report.access, out);
            self.close_too(from, out);
            self.endorse_compaction(from, out);
        }
        let (slot, digest) = (report.floor, report.digest);
        if slot <= self.state.applied() {
            return;
        }
        if self.learning.snapshots.len() >= SNAPSHOTS {
            self.learning.snapshots.clear();
        }
        let reporters = self.learning.snapshots.entry((slot, digest)).or_default();
        if configuration.contains(from) {
            reporters.insert(from);
        }
        if is_majority(reporters, &configuration) {
            out.request(from, AcceptorRequest::Snapshot { offered: None });
        }
    }

    /// Installs a snapshot, if a majority of the acceptors has reported the same one.
    pub(super) fn install(&mut self, snapshot: CouncilSnapshot, out: &mut Out<'_, M::Change>) {
        let Some(configuration) = self.state.configuration() else { return };
        let agreed = self.learning.snapshots.get(&(snapshot.slot, snapshot.digest()));
        let is_agreed = agreed.is_some_and(|reporters| is_majority(reporters, &configuration));
        if snapshot.slot <= self.state.applied() || !is_agreed {
            self.counts.forged += u64::from(!is_agreed);
            return;
        }
        let Some(state) = CouncilState::restore(self.state.council(), &snapshot) else { return };
        self.state = state;
        self.stored = snapshot.slot;
        self.upkeep.installed(&snapshot, self.state.compacted());
        self.round.at_least(snapshot.slot.next());
        self.end_forgotten(out);
        out.emit(Output::Installed(snapshot.slot));
        out.store_later(Record::Snapshot(snapshot));
        self.move_on(out);
        self.fetch(out);
        self.learn(out);
    }
}

impl<M: Machine> Device<M> {
    /// Returns the value of the next slot, if a member has extended it.
    pub(super) fn implied_decision(&self, slot: Slot) -> Option<SlotValue> {
        let later: Vec<_> = self.learning.accepted_in(slot.next()).collect();
        if later.is_empty() {
            return None;
        }
        let mut accepted = self.learning.accepted_in(slot);
        accepted.find(|value| later.iter().any(|later| self.extends(value, slot.next(), later))).cloned()
    }

    /// Returns whether the author of the later value is a member, as far as this device knows, and has built it on
    /// top of the earlier one.
    fn extends(&self, value: &SlotValue, slot: Slot, later: &SlotValue) -> bool {
        self.state.machine().may_propose(&later.author)
            && later.batch().is_some_and(|batch| batch.previous == self.state.chain_after(value))
            && later.is_signed(self.state.council(), slot, &*self.verifier)
    }
}

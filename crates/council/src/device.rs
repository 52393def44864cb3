//! The device of a member: proposes operations for slots, and rebuilds and repeats a lost proposal until it is
//! decided.
//!
//! The device is a [`Core`]: its step takes an event and the time, and returns the records to store, the outputs to perform at
//! once, and those that wait for the disk. All kinds of operations take the same path: build → prepare → accept → resolve →
//! wait. A wait is only a time to [wake at](Device::wake_at); meanwhile the device processes every message.

mod access;
mod deciding;
#[cfg(test)]
mod faults;
mod io;
mod learning;
mod options;
mod outbox;
mod pending;
mod round;
mod step;
#[cfg(test)]
mod tests;
mod upkeep;

use std::collections::BTreeMap;

use access::Removal;
use holdoff_driver::{Core, Roll};
use holdoff_paxos::{NodeId, Slot};

#[cfg(test)]
pub(crate) use faults::CouncilFault;
pub use io::{DeviceCounters, Input, Mail, NotCommitted, Outcome, Output, Record, StoredMark};
use learning::Learning;
pub(crate) use learning::is_majority;
pub use options::Options;
use outbox::Outbox;
use pending::{Announced, Ending, Pending};
pub use round::AttemptReserve;
use round::{Round, RoundTrip, UsedAttempts};
pub use step::DeviceStep;
use step::Out;
use upkeep::Upkeep;

use crate::machine::Machine;
use crate::{AcceptorReply, CouncilState, OperationId, PublicKey, Signer, Verifier};

/// The device of a member in one council.
pub struct Device<M: Machine> {
    me: NodeId,
    signer: Box<dyn Signer + Send>,
    verifier: Box<dyn Verifier + Send>,
    options: Options,
    state: CouncilState<M>,
    /// The last slot that the stored snapshot covers.
    stored: Slot,
    pending: BTreeMap<OperationId, Pending<M::Change>>,
    /// The number of operations that were submitted so far.
    submissions: u64,
    /// The operations that the device has ended by itself, until their ends are on disk.
    ending: BTreeMap<OperationId, Ending>,
    /// The number of operations that the device has ended by itself.
    ends: u64,
    outbox: Outbox,
    announced: Announced,
    round: Round,
    used: UsedAttempts,
    learning: Learning,
    round_trip: RoundTrip,
    upkeep: Upkeep,
    removal: Removal,
    counts: DeviceCounters,
    /// Whether no step has run since the start of the process.
    is_new: bool,
}

impl<M: Machine> Device<M> {
    /// Creates a device with this state. [`Device::restore`] then adds the stored records, if there are any.
    pub fn new(
        me: NodeId,
        signer: Box<dyn Signer + Send>,
        verifier: Box<dyn Verifier + Send>,
        state: CouncilState<M>,
        options: Options,
    ) -> Self {
        let round = Round::new(state.applied().next());
        Self {
            me,
            signer,
            verifier,
            round_trip: RoundTrip::new(options.first_guess),
            options,
            stored: state.applied(),
            state,
            pending: BTreeMap::new(),
            submissions: 0,
            ending: BTreeMap::new(),
            ends: 0,
            outbox: Outbox::default(),
            announced: Announced::default(),
            round,
            used: UsedAttempts::default(),
            learning: Learning::default(),
            upkeep: Upkeep::default(),
            removal: Removal::default(),
            counts: DeviceCounters::default(),
            is_new: true,
        }
    }

    /// Restores a record that an earlier process has stored: first the snapshot, then the slots in order, then the
    /// rest.
    pub fn restore(&mut self, record: Record<M::Change>) {
        match record {
            Record::Snapshot(snapshot) => {
                if let Some(state) = CouncilState::restore(self.state.council(), &snapshot) {
                    self.stored = snapshot.slot;
                    self.state = state;
                    self.upkeep.installed(&snapshot, self.state.compacted());
                }
            }
            Record::Applied { slot, value } => {
                if slot == self.state.applied().next() {
                    let applied = self.state.apply(&value, &*self.verifier);
                    self.upkeep.applied(&value, &applied);
                }
            }
            Record::Attempt(attempt) => self.used.note(attempt),
            Record::Reserved(reserve) => self.used.restore(reserve),
            Record::Submitted { id, change, mail, birth_slot } => {
                self.pending.insert(id, Pending::restored(change, mail, birth_slot));
            }
            Record::Ended { id } => drop(self.pending.remove(&id)),
            Record::Mail { id, mail } => self.outbox.keep(id, mail),
            Record::Posted { id } => self.outbox.forget(id),
        }
        self.round.at_least(self.state.applied().next());
    }

    /// Returns the decided state, as far as this device knows it.
    pub fn state(&self) -> &CouncilState<M> {
        &self.state
    }

    /// Returns the device's id in ballots.
    pub fn id(&self) -> NodeId {
        self.me
    }

    /// Returns the member's key.
    pub fn key(&self) -> PublicKey {
        self.signer.public()
    }

    /// Returns the device's counters.
    pub fn counts(&self) -> &DeviceCounters {
        &self.counts
    }

    /// Iterates over the ids of the pending operations.
    pub fn pending(&self) -> impl Iterator<Item = OperationId> + '_ {
        self.pending.keys().copied()
    }

    /// Iterates over the pending operations with their requested changes.
    pub fn pending_changes(&self) -> impl Iterator<Item = (OperationId, &M::Change)> {
        self.pending.iter().map(|(id, pending)| (*id, &pending.change))
    }

    /// Returns whether the device has data to deliver beside its operations: a mail message or a snapshot.
    pub fn has_undelivered(&self) -> bool {
        self.has_snapshot_to_send() || self.unposted_mail().next().is_some()
    }

    /// Returns the measured time between a request and its answer.
    pub fn round_trip_us(&self) -> u64 {
        self.round_trip.estimate_us()
    }

    /// Returns the latest time for the next [`Input::Tick`].
    pub fn wake_at(&self) -> u64 {
        let deadlines = self.pending.values().filter_map(Pending::wakes_at_us);
        let round = self.round.wakes_at_us();
        let others = [round, self.upkeep.wakes_at_us(), self.outbox.wakes_at_us()].into_iter().flatten();
        deadlines.chain(others).chain([self.learning.poll_us()]).min().unwrap_or(u64::MAX)
    }

    /// Returns what is on disk when all records so far are on disk.
    fn mark(&self) -> StoredMark {
        StoredMark { reserve: self.used.asked(), submissions: self.submissions, ends: self.ends }
    }

    fn stored(&mut self, mark: StoredMark) {
        self.used.stored(mark.reserve);
        self.pending.values_mut().for_each(|pending| pending.stored(mark.submissions));
        self.ending.retain(|_, ending| ending.number > mark.ends);
    }

    fn handle_reply(&mut self, from: NodeId, reply: AcceptorReply, out: &mut Out<'_, M::Change>) {
        match reply {
            AcceptorReply::Promise { slot, reply, announced, latest } => {
                self.add_announced(announced);
                self.learning.may_be_behind(latest);
                self.promised(from, slot, reply, out);
            }
            AcceptorReply::Accepted { slot, reply, next, announced } => {
                self.add_announced(announced);
                self.accepted(from, slot, reply, next, out);
            }
            AcceptorReply::Voted { slot, vote } => self.votes(from, [(slot, vote)], out),
            AcceptorReply::History { votes, latest } => self.history(from, votes, latest, out),
            AcceptorReply::Report(report) => self.reported(from, report, out),
            AcceptorReply::Snapshot { snapshot, certificate } => {
                self.pass_on(&snapshot, &certificate, out);
                self.install(snapshot, out);
            }
            AcceptorReply::Posted { id } => self.posted(from, id, out),
            AcceptorReply::Closed(closing) => self.closed(from, closing, out),
            AcceptorReply::Refused { slot, why } => self.refused(from, slot, why, out),
            // Mail is for a participant that is not a device yet.
            AcceptorReply::Mail(_) => {}
        }
    }

    /// Performs all actions that are due.
    fn pass_time(&mut self, out: &mut Out<'_, M::Change>) {
        self.expire_deadlines(out);
        self.retransmit(out);
        self.poll(out);
        self.repost_mail(out);
        self.run_upkeep(out);
    }
}

impl<M: Machine> Core for Device<M> {
    type Input = Input<M::Change>;
    type Record = Record<M::Change>;
    type Output = Output;

    fn step(&mut self, now_us: u64, roll: Roll<'_>, input: Input<M::Change>) -> DeviceStep<M::Change> {
        let mut out = Out::new(now_us, roll);
        if std::mem::take(&mut self.is_new) {
            // The changes that an earlier process requested may have become true or impossible in the meantime.
            self.resolve(&mut out);
            self.reserve(&mut out);
        }
        match input {
            Input::Submit { id, change, mail, deadline_us } => {
                self.submit(id, change, mail, deadline_us, &mut out);
            }
            Input::Reply { from, reply } => self.handle_reply(from, reply, &mut out),
            Input::Stored(mark) => self.stored(mark),
            Input::Tick => {}
        }
        self.pass_time(&mut out);
        self.advance(&mut out);
        let is_awaited = |record: &Record<_>| {
            matches!(record, Record::Reserved(_) | Record::Submitted { .. } | Record::Ended { .. })
        };
        if out.step.records().iter().any(is_awaited) {
            out.step.return_when_stored(Input::Stored(self.mark()));
        }
        out.step
    }
}

impl<M: Machine> std::fmt::Debug for Device<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device")
            .field("me", &self.me)
            .field("applied", &self.state.applied())
            .field("compacted", &self.state.compacted())
            .field("configuration", &self.state.configuration())
            .field("round", &self.round)
            .field("pending", &self.pending.keys().collect::<Vec<_>>())
            .field("counts", &self.counts)
            .field("upkeep", &self.upkeep)
            .finish_non_exhaustive()
    }
}

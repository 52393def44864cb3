//! A member's device: it wants things decided, proposes them, loses, and goes on until it is through.
//!
//! Pure: [`Device::step`] is told what happened and when, and says what to store and then what to do.
//! There is one way for every kind of operation: build → prepare → accept → resolve → wait, and waiting is
//! a time to [wake at](Device::wake_at), during which everything is still heard.

mod announced;
mod counts;
mod deciding;
mod io;
mod learning;
mod letters;
mod options;
mod pending;
mod round;
mod round_trip;
mod step;
#[cfg(test)]
mod tests;
mod upkeep;
mod vouching;
mod waiting;

use std::collections::BTreeMap;

use holdoff_paxos::{NodeId, Slot};

use announced::Announced;
pub use counts::Counts;
pub use io::{Input, Letter, NotCommitted, Outcome, Output, Record};
use learning::Learning;
use letters::Letters;
pub use options::Options;
use pending::Pending;
pub use round::Reserve;
use round::{Round, Used};
use round_trip::RoundTrip;
use step::Out;
pub use step::{Roll, Step};
use upkeep::Upkeep;

use crate::machine::Machine;
use crate::{Decided, OperationId, PublicKey, Signer, Tell, Verifier, planted};

/// A member's device, in one council.
pub struct Device<M: Machine> {
    me: NodeId,
    signer: Box<dyn Signer + Send>,
    verifier: Box<dyn Verifier + Send>,
    options: Options,
    state: Decided<M>,
    /// The last slot that the stored snapshot stands for.
    stored: Slot,
    pending: BTreeMap<OperationId, Pending<M::Wish>>,
    letters: Letters,
    announced: Announced,
    round: Round,
    used: Used,
    learning: Learning,
    round_trip: RoundTrip,
    upkeep: Upkeep,
    counts: Counts,
    /// Nothing has happened in this life yet.
    is_new: bool,
}

impl<M: Machine> Device<M> {
    /// A device that starts from here, or from what it [restores](Device::restore) then.
    pub fn new(
        me: NodeId,
        signer: Box<dyn Signer + Send>,
        verifier: Box<dyn Verifier + Send>,
        state: Decided<M>,
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
            letters: Letters::default(),
            announced: Announced::default(),
            round,
            used: Used::default(),
            learning: Learning::default(),
            upkeep: Upkeep::default(),
            counts: Counts::default(),
            is_new: true,
        }
    }

    /// Takes up what an earlier life has stored: the snapshot, then the slots in their order, then the rest.
    pub fn restore(&mut self, record: Record<M::Wish>) {
        match record {
            Record::Snapshot(snapshot) => {
                if let Some(state) = Decided::restore(self.state.council(), &snapshot) {
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
            Record::Attempt(_) | Record::Reserved(_) if planted!(ForgetAttempts) => {}
            Record::Attempt(attempt) => self.used.note(attempt),
            Record::Reserved(reserve) => self.used.restore(reserve),
            Record::Submitted { id, wish, letter, born } => {
                self.pending.insert(id, Pending::restored(wish, letter, born));
            }
            Record::Ended { id } => drop(self.pending.remove(&id)),
            Record::Letter { id, letter } => self.letters.keep(id, letter),
            Record::Posted { id } => self.letters.forget(id),
        }
        self.round.at_least(self.state.applied().next());
    }

    /// Everything that is decided, as far as it is known here.
    pub fn state(&self) -> &Decided<M> {
        &self.state
    }

    /// Who this is, in ballots.
    pub fn id(&self) -> NodeId {
        self.me
    }

    /// This member's key.
    pub fn key(&self) -> PublicKey {
        self.signer.public()
    }

    /// What it has done so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Which operations are under way.
    pub fn pending(&self) -> impl Iterator<Item = OperationId> + '_ {
        self.pending.keys().copied()
    }

    /// The same with what each of them wants.
    pub fn wishes(&self) -> impl Iterator<Item = (OperationId, &M::Wish)> {
        self.pending.iter().map(|(id, pending)| (*id, &pending.wish))
    }

    /// Whether it has something to hand in beside its operations: a letter, or a snapshot.
    pub fn has_errands(&self) -> bool {
        self.has_snapshot_to_hand_in() || self.letters().next().is_some()
    }

    /// How long a question and its answer take, as measured.
    pub fn round_trip_us(&self) -> u64 {
        self.round_trip.estimate_us()
    }

    /// Tells the device what happened. See [`Step`] for what to do with what comes out.
    pub fn step(&mut self, now_us: u64, roll: Roll<'_>, input: Input<M::Wish>) -> Step<M::Wish> {
        let mut out = Out::new(now_us, roll);
        if std::mem::take(&mut self.is_new) {
            // What is wanted since an earlier life may have come true, or become impossible, in the meantime.
            self.resolve(&mut out);
            self.reserve(&mut out);
        }
        match input {
            Input::Submit { id, wish, letter, deadline_us } => {
                self.submit(id, wish, letter, deadline_us, &mut out);
            }
            Input::Told { from, tell } if !self.is_deaf() => self.told(from, tell, &mut out),
            Input::Told { .. } | Input::Tick => {}
        }
        self.pass_time(&mut out);
        self.go_on(&mut out);
        out.into_step()
    }

    /// Tells the device that everything it has given out to be stored so far is on disk.
    pub fn stored(&mut self) {
        self.used.are_stored();
        self.pending.values_mut().for_each(Pending::is_on_disk);
    }

    /// When to say [`Input::Tick`] at the latest.
    pub fn wake_at(&self) -> u64 {
        let deadlines = self.pending.values().filter_map(Pending::wakes_at_us);
        let round = self.round.wakes_at_us();
        let others = [round, self.upkeep.wakes_at_us(), self.letters.wakes_at_us()].into_iter().flatten();
        deadlines.chain(others).chain([self.learning.poll_us()]).min().unwrap_or(u64::MAX)
    }

    fn told(&mut self, from: NodeId, tell: Tell, out: &mut Out<'_, M::Wish>) {
        match tell {
            Tell::Promise { slot, reply, announced, latest } => {
                self.hear(announced);
                self.learning.may_be_behind(latest);
                self.promised(from, slot, reply, out);
            }
            Tell::Accepted { slot, reply, next, announced } => {
                self.hear(announced);
                self.accepted(from, slot, reply, next, out);
            }
            Tell::Voted { slot, vote } => self.votes(from, [(slot, vote)], out),
            Tell::History { votes, latest } => self.history(from, votes, latest, out),
            Tell::Compacted { slot, digest } => self.compacted(from, slot, digest, out),
            Tell::Snapshot(snapshot) => self.install(snapshot, out),
            Tell::Posted { id } => self.posted(from, id, out),
            Tell::Refused { slot, why } => self.refused(from, slot, why, out),
            // Mail is for who is not a device yet.
            Tell::Mail(_) => {}
        }
    }

    /// Whatever was due by now.
    fn pass_time(&mut self, out: &mut Out<'_, M::Wish>) {
        self.miss_deadlines(out);
        self.ask_again(out);
        self.poll(out);
        self.post_again(out);
        self.keep_up(out);
    }

    /// One of the known defects: it sleeps, and hears nothing meanwhile.
    fn is_deaf(&self) -> bool {
        planted!(SleepInTheActor) && self.round.is_waiting()
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
            .finish_non_exhaustive()
    }
}

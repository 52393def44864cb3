//! One node of a ledger: its inputs and outputs.
//!
//! ```text
//! io.rs       what comes, and what is wanted      fetching.rs  what is missing, from whoever has it
//! leading.rs  goals run over what is in flight    sealing.rs   signatures under what is decided
//! pending.rs  transactions that were submitted    proving.rs   whole states, and who is to be believed
//! reading.rs  answers, and how fresh they are     changing.rs  who votes from then on
//! counts.rs   what was done, for metrics          options.rs   how patient, and how much
//! joining.rs  many entries in few messages        verifying.rs  the history that is kept, gone over again
//! ```

mod changing;
mod counts;
mod fetching;
mod io;
mod joining;
mod leading;
mod options;
mod pending;
mod proving;
mod reading;
mod sealing;
mod verifying;

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;

use holdoff_paxos::log::{self, Node};
use holdoff_paxos::{Configuration, NodeId, Slot, planted};

pub use changing::{MAX_VOTERS, NotChanged};
pub use counts::Counts;
pub use io::{How, Input, Letter, LetterOf, Outcome, Output, OutputOf, ReadId, Record, Step, Store};
pub use joining::join;
pub use options::Options;
pub use verifying::Verified;

use crate::certificate::{Certificate, Notary};
use crate::entry::{Logged, Replicated, TxId, Value};
use crate::state::{Checkpoint, State, Tear};
use changing::Changing;
use fetching::Fetching;
use leading::Tenure;
use pending::{Pending, Routing};
use proving::Proofs;
use reading::Reads;
use sealing::Seals;

type Log<M> = Node<Value<M>, Checkpoint<<M as crate::machine::Machine>::Answer>>;
type LogInput<M> = log::Input<Value<M>, Checkpoint<<M as crate::machine::Machine>::Answer>>;
type LogMessage<M> = log::Message<Value<M>, Checkpoint<<M as crate::machine::Machine>::Answer>>;

/// A node of a ledger: it votes, leads, follows, and serves the decided history.
///
/// The runtime passes each event to [`Ledger::step`], with a time that never goes back and a random number. It stores
/// the returned records in order, and then performs the outputs.
pub struct Ledger<M: Replicated, N> {
    pub(crate) me: NodeId,
    options: Options,
    notary: N,
    log: Log<M>,
    state: State<M>,
    tenure: Option<Tenure<M>>,
    pending: BTreeMap<TxId, Pending<M::Goal>>,
    /// The last applied entries, which this node serves to nodes that miss them.
    pub(crate) history: VecDeque<Logged<M>>,
    pub(crate) certificates: BTreeMap<Slot, Certificate>,
    seals: Seals,
    proofs: Proofs<M::Answer>,
    fetching: Fetching,
    reads: Reads<M::Goal>,
    changing: Changing,
    /// As the leader: the highest decided index that this node has sent to other nodes.
    told: Slot,
    /// The time of the last signature share for the head of the history.
    sealed_us: Option<u64>,
    routing: Routing,
    /// The end of the time for which this node supports no candidate except the leader that it has confirmed.
    vouched_us: u64,
    /// The term that this node has confirmed, in this incarnation.
    vouched: Option<log::Term>,
    /// The time until which this node lets another node lead, and whether it has done so since it last knew a leader.
    yields: (u64, bool),
    torn: Option<Tear>,
    /// The last known leader.
    led: Option<NodeId>,
    counts: Counts,
    now_us: u64,
    roll: u32,
    records: Vec<Record<M>>,
    early: Vec<OutputOf<M>>,
    outputs: Vec<OutputOf<M>>,
}

impl<M: Replicated, N: Notary> Ledger<M, N> {
    /// Returns an empty store for a ledger with these voters.
    pub fn empty(voters: Configuration) -> Store<M> {
        log::Store::new(voters, Checkpoint::default())
    }

    /// Creates a node that continues from its store.
    ///
    /// For the length of a lease the node takes part in no election: it may have confirmed a term in an earlier
    /// incarnation.
    pub fn new(
        me: NodeId,
        options: Options,
        notary: N,
        store: Store<M>,
        now_us: u64,
        roll: u32,
    ) -> Result<Self, Tear> {
        let state = State::restore(store.snapshot())?;
        let vouched_us = if planted!(ForgetVouching) { 0 } else { now_us + options.lease_us };
        let proofs = Proofs::of(&store.snapshot().state);
        let log = Node::new(me, options.log, store, now_us, roll);
        let mut ledger = Self {
            me,
            options,
            notary,
            log,
            state,
            tenure: None,
            pending: BTreeMap::new(),
            history: VecDeque::new(),
            certificates: BTreeMap::new(),
            seals: Seals::default(),
            proofs,
            fetching: Fetching::default(),
            reads: Reads::default(),
            changing: Changing::default(),
            told: Slot(0),
            sealed_us: None,
            routing: Routing::default(),
            vouched_us,
            vouched: None,
            yields: (0, false),
            torn: None,
            led: None,
            counts: Counts::default(),
            now_us,
            roll,
            records: Vec::new(),
            early: Vec::new(),
            outputs: Vec::new(),
        };
        if planted!(CountOnRestart) {
            ledger.count_without_applying();
        }
        ledger.apply_decided();
        Ok(ledger)
    }

    /// Processes one input.
    pub fn step(&mut self, now_us: u64, roll: u32, input: Input<M>) -> Step<M> {
        (self.now_us, self.roll) = (now_us, roll);
        if self.torn.is_none() {
            self.take_in(input);
            self.lead();
            self.route();
            self.note_leader();
        }
        let [early, outputs] = [&mut self.early, &mut self.outputs].map(std::mem::take);
        log::Step::new(early, std::mem::take(&mut self.records), outputs)
    }

    /// Returns the state after the decided entries that this node has applied.
    pub fn state(&self) -> &State<M> {
        &self.state
    }

    /// Returns the node's promise and its log.
    pub fn store(&self) -> &Store<M> {
        self.log.store()
    }

    /// Returns the leader, as far as this node knows it.
    pub fn leader(&self) -> Option<NodeId> {
        self.log.leader()
    }

    /// Returns the term that this node leads, if it is the leader.
    pub fn leads(&self) -> Option<log::Term> {
        self.log.leads()
    }

    /// Returns true if this node leads and accepts transactions.
    pub fn is_ready(&self) -> bool {
        self.tenure.is_some() && !self.log.hands_over()
    }

    /// Returns true if this node leads and has not yet sent its latest decided index to any node. The runtime passes
    /// [`Input::Announce`] when it has nothing else to send.
    pub fn must_announce(&self) -> bool {
        self.log.leads().is_some() && self.told < self.log.store().decided()
    }

    /// Returns the number of pending transactions that were submitted at this node.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Returns the counters of this node.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns the divergence that has stopped this node, if any.
    pub fn torn(&self) -> Option<&Tear> {
        self.torn.as_ref()
    }

    /// Returns the end of the time for which this node supports no candidate except the leader that it has confirmed.
    #[cfg(test)]
    pub(crate) fn vouched_until_us(&self) -> u64 {
        self.vouched_us
    }

    fn take_in(&mut self, input: Input<M>) {
        match input {
            Input::Tick => self.tick(),
            Input::Message(from, letter) => self.hear(from, letter),
            Input::Submit { tx_id, goal } => self.submit(tx_id, goal),
            Input::Read { read, goal, how } => self.read(read, goal, how),
            Input::Change(to) => self.change(to),
            Input::Compact => self.compact_now(),
            Input::Contacts(contacts) => self.fetching.contacts = contacts,
            Input::ShouldLead(node) => self.heed_hint(node),
            Input::HandOver(to) => self.log(log::Input::HandOver(to)),
            Input::Announce => self.log(log::Input::Announce),
            Input::Stored { term, slot } => self.log(log::Input::Stored { term, slot }),
        }
    }

    fn tick(&mut self) {
        let leads = self.log.leads().is_some();
        let waits = self.now_us < self.vouched_us || self.now_us < self.yields.0;
        if leads || !waits {
            self.log(log::Input::Tick);
        }
        if self.log.leader().is_some() {
            self.yields.1 = false;
        }
        self.routing.all = true;
        self.end_late();
        self.end_late_change();
        self.seal_again();
        self.spread_stone();
        self.fetch();
        self.probe_on();
        self.compact();
        // A snapshot may have reached the disk since the last entry was applied.
        self.forget();
    }

    fn hear(&mut self, from: NodeId, letter: LetterOf<M>) {
        match letter {
            Letter::Log(message) => self.hear_log(from, message),
            Letter::Submit { tx_id, goal, relayed } => self.take_from(tx_id, goal, relayed),
            Letter::Seal(seal) => self.collect(from, seal),
            Letter::Certified(certificate) => self.know(from, &certificate),
            Letter::Fetch { after, or_state } => self.serve(from, after, or_state),
            Letter::History { first, entries, rest, certificate } => {
                self.admit(first, entries, &rest, &certificate);
            }
            Letter::State(snapshot) => self.admit_state(snapshot),
            Letter::Probe(term, round) => self.vouch(from, term, round),
            Letter::Probed(term, round) => self.probed(from, term, round),
        }
    }

    /// Passes a message to the log. A voter that has confirmed a leader's term supports no other candidate and does
    /// not become one itself, unless that leader no longer leads.
    fn hear_log(&mut self, from: NodeId, message: LogMessage<M>) {
        if self.is_freed_by(from, &message) {
            self.vouched_us = self.now_us;
        }
        if self.may_hear(from, &message) {
            self.log(log::Input::Message(from, message));
        }
    }

    /// Starts a pre-vote if the hint names this node. Otherwise, if no leader is known, waits for the named node, once
    /// for each period without a leader. A false hint costs one round of messages, or that wait.
    fn heed_hint(&mut self, node: NodeId) {
        if node == self.me {
            self.yields.0 = self.now_us;
            self.log(log::Input::Run);
        }
        if node != self.me && self.log.leader().is_none() && !self.yields.1 {
            self.yields = (self.now_us + self.options.log.election_us, true);
        }
    }

    /// Passes an input to the log and applies the entries that it decides.
    fn log(&mut self, input: LogInput<M>) {
        let mut step = self.log.step(self.now_us, self.roll, input);
        for output in step.early() {
            if let log::Output::Send(to, message) = output {
                self.note_told(&message);
                self.early.push(Output::Send(to, Letter::Log(message)));
            }
        }
        let records = &mut self.records;
        let stored = step.release(|step| {
            records.extend(step);
            Ok::<_, Infallible>(())
        });
        let outputs = match stored {
            Ok(outputs) => outputs,
            Err(never) => match never {},
        };
        for output in outputs {
            match output {
                log::Output::Send(to, message) => {
                    self.note_told(&message);
                    self.send(to, Letter::Log(message));
                }
                log::Output::NotTaken(why) => self.not_taken(why),
                log::Output::Proposed(slot, term) => self.proposed(slot, term),
                log::Output::Stored { term, slot } => self.outputs.push(Output::Stored { term, slot }),
                log::Output::HandedOver(to) => {
                    self.drop_lease();
                    // This node does not compete with the target of the transfer.
                    self.yields = (self.now_us + 2 * self.options.log.election_us, true);
                    self.outputs.push(Output::HandedOver(to));
                }
                log::Output::NotHandedOver(why) => self.outputs.push(Output::NotHandedOver(why)),
                log::Output::Decided(_) | log::Output::Installed(_) => {}
            }
        }
        self.apply_decided();
    }

    fn note_told(&mut self, message: &log::Message<Value<M>, Checkpoint<M::Answer>>) {
        if let log::Message::Append(append) = message {
            self.told = self.told.max(append.decided);
        }
    }

    fn send(&mut self, to: NodeId, letter: LetterOf<M>) {
        self.outputs.push(Output::Send(to, letter));
    }

    /// Applies the decided entries: each once and in order. A missing entry stops the loop; nothing replaces it.
    fn apply_decided(&mut self) {
        let before = self.state.index;
        if self.log.store().snapshot().last.slot > self.state.index {
            self.begin_anew();
        }
        while self.torn.is_none() && self.state.index < self.log.store().decided() {
            let slot = self.state.index.next();
            let Some(entry) = self.log.store().entry(slot).cloned() else { return };
            self.apply(slot, entry);
            self.take_draft();
        }
        if self.state.index > before {
            self.seal_soon();
        }
    }

    /// Restores the state from a snapshot that replaces entries.
    fn begin_anew(&mut self) {
        match State::restore(self.log.store().snapshot()) {
            Ok(state) => {
                self.state = state;
                self.tenure = None;
                self.history.clear();
                self.end_done();
                self.take_stones();
            }
            Err(tear) => self.stop(tear),
        }
    }

    fn apply(&mut self, slot: Slot, entry: Logged<M>) {
        let applied = match &mut self.tenure {
            Some(tenure) if tenure.term == entry.term => {
                self.state.settle_oldest(slot, &entry, &mut tenure.over)
            }
            _ => self.state.apply(slot, &entry),
        };
        match applied {
            Ok(()) => {
                self.end_change(slot, &entry);
                if let log::Payload::Value(value) = &entry.payload {
                    self.land(value.tx_id);
                    self.end(value.tx_id);
                }
                self.history.push_back(entry);
                self.forget();
            }
            Err(tear) => self.stop(tear),
        }
    }

    /// Keeps the last `kept` entries and all entries that the log has, and the certificates for them.
    fn forget(&mut self) {
        let base = self.log.store().snapshot().last.slot;
        while self.history.len() > self.options.kept && self.first_kept() <= base {
            self.history.pop_front();
        }
        let first = self.first_kept();
        while self.certificates.first_key_value().is_some_and(|(index, _)| *index < first) {
            self.certificates.pop_first();
        }
    }

    /// Returns the index of the oldest entry that this node can serve.
    pub(crate) fn first_kept(&self) -> Slot {
        Slot(self.state.index.0 + 1 - self.history.len() as u64)
    }

    fn note_leader(&mut self) {
        let leader = self.log.leader();
        if leader.is_some() && leader != self.led {
            self.counts.leader_changes += u64::from(self.led.is_some());
            self.led = leader;
        }
    }

    fn stop(&mut self, tear: Tear) {
        self.outputs.push(Output::Torn(tear.clone()));
        self.torn = Some(tear);
    }

    /// The restart of the source document's algorithm (fault injection).
    fn count_without_applying(&mut self) {
        while let Some(entry) = self.log.store().entry(self.state.index.next()) {
            let slot = self.state.index.next();
            let hash = crate::entry::link(self.state.hash, slot, entry);
            (self.state.index, self.state.hash) = (slot, hash.unwrap_or_default());
        }
    }
}

//! The core of a node: its inputs and outputs.
//!
//! ```text
//! io.rs       inputs, messages and outputs            fetching.rs   requests for missing history
//! leading.rs  goals executed by the leader            signing.rs    signature shares of decided heads
//! pending.rs  transactions submitted at this node     proving.rs    states, configurations and their verification
//! reading.rs  reads, and the leader lease             changing.rs   changes of the voters
//! options.rs  timeouts, limits and counters             receiving.rs  whole states, chunk after chunk
//! ```

mod changing;
#[cfg(test)]
pub(crate) mod faulty;
mod fetching;
mod io;
mod leading;
mod options;
mod pending;
mod proving;
mod reading;
mod receiving;
mod signing;

use std::collections::{BTreeMap, VecDeque};

use holdoff_driver::{Core, Inner, Roll, Step};
use holdoff_paxos::log::{self, Node};
use holdoff_paxos::{Configuration, NodeId, Slot};
use serde::{Deserialize, Serialize};

pub use changing::{ChangeError, MAX_VOTERS};
pub use io::{
    Consistency, Input, LedgerStep, Message, MessageOf, Outcome, Output, OutputOf, ReadId, Record, Store,
    SubmissionId, coalesce_appends,
};
pub use options::{LedgerCounters, Options};
pub use proving::Verification;
pub use receiving::IncompleteSnapshot;

use crate::certificate::{Certificate, Notary};
use crate::entry::{LogEntry, ReplicatedMachine, TransactionOf, TxId, TxKey};
use crate::state::{Checkpoint, Divergence, SnapshotContent, State};
use changing::Changing;
use fetching::Fetching;
use leading::LeaderState;
use pending::{Pending, Routing};
use proving::Proofs;
use reading::Reads;
use receiving::Transfer;
use signing::SignatureShares;

type Log<M> = Node<TransactionOf<M>, Checkpoint>;
type LogInput<M> = log::Input<TransactionOf<M>, Checkpoint>;
type LogMessage<M> = log::Message<TransactionOf<M>, Checkpoint>;

/// The content of a node's disk, from which the node continues.
pub struct Recovered<M: ReplicatedMachine> {
    /// The node's promise and its log.
    pub store: Store<M>,
    /// The content of the log's snapshot.
    pub content: SnapshotContent<M>,
    /// A snapshot whose content the node was receiving.
    pub incomplete: Option<IncompleteSnapshot>,
    /// The last recovery of the ledger, if there was one.
    pub refounded: Option<Refounding>,
}

/// A configuration of one voter that an operator has founded after the loss of a majority. No certificate of earlier voters
/// leads to it: a node knows it from its operator, or from the member through which it has joined.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Refounding {
    /// The first index that the configuration decides.
    pub start: Slot,
    /// The voter.
    pub by: NodeId,
}

impl<M: ReplicatedMachine> From<Store<M>> for Recovered<M> {
    /// Returns the content of a disk whose log has no snapshot.
    fn from(store: Store<M>) -> Self {
        Self { store, content: SnapshotContent::default(), incomplete: None, refounded: None }
    }
}

/// A node of a ledger: it votes, leads, follows, and serves the decided history.
///
/// The runtime passes each event to [`Ledger::step`], with a time that never goes back and a random number. It stores
/// the returned records in order, and then performs the outputs.
pub struct Ledger<M: ReplicatedMachine, N> {
    pub(crate) me: NodeId,
    options: Options,
    notary: N,
    log: Log<M>,
    state: State<M>,
    leader_state: Option<LeaderState<M>>,
    pending: BTreeMap<TxId, Pending<M::Goal>>,
    /// The last applied entries, which this node serves to nodes that miss them.
    pub(crate) history: VecDeque<LogEntry<M>>,
    /// The size of all entries up to and including each entry of the history.
    history_ends: VecDeque<u64>,
    pub(crate) certificates: BTreeMap<Slot, Certificate>,
    signature_shares: SignatureShares,
    proofs: Proofs<M>,
    transfer: Option<Transfer>,
    /// The state of the snapshot that the log is about to adopt.
    restored: Option<State<M>>,
    fetching: Fetching,
    reads: Reads<M::Goal>,
    changing: Changing,
    /// As the leader: the highest decided index that this node has sent to other nodes.
    announced: Slot,
    /// The time of the last signature share for the head of the history.
    signed_us: Option<u64>,
    routing: Routing,
    /// The end of the time for which this node supports no candidate except the leader that it has confirmed.
    lease_granted_until_us: u64,
    /// The term that this node has confirmed, in this incarnation.
    confirmed_term: Option<log::Term>,
    /// The time until which this node lets another node lead, and whether it has done so since it last knew a leader.
    yields: (u64, bool),
    divergence: Option<Divergence>,
    /// The last known leader.
    last_leader: Option<NodeId>,
    counts: LedgerCounters,
    now_us: u64,
    roll: u32,
    /// The content of the step in progress.
    step: LedgerStep<M>,
}

impl<M: ReplicatedMachine, N: Notary> Ledger<M, N> {
    /// Returns an empty store for a ledger with these voters.
    pub fn empty(voters: Configuration) -> Store<M> {
        log::Store::new(voters, Checkpoint::default())
    }

    /// Creates a node that continues from its disk.
    ///
    /// For the length of a lease the node takes part in no election: it may have confirmed a term in an earlier
    /// incarnation.
    pub fn new(
        me: NodeId,
        options: Options,
        notary: N,
        recovered: Recovered<M>,
        now_us: u64,
        roll: u32,
    ) -> Result<Self, Divergence> {
        let Recovered { store, content, incomplete, refounded } = recovered;
        let state = State::restore(store.snapshot(), content, options.dedup)?;
        let lease_granted_until_us = now_us + options.lease_us;
        let proofs = Proofs::of(&store.snapshot().state, refounded);
        let log = Node::new(me, options.log, store, now_us, roll);
        let mut ledger = Self {
            me,
            options,
            notary,
            log,
            state,
            leader_state: None,
            pending: BTreeMap::new(),
            history: VecDeque::new(),
            history_ends: VecDeque::new(),
            certificates: BTreeMap::new(),
            signature_shares: SignatureShares::default(),
            proofs,
            transfer: incomplete.and_then(Transfer::of),
            restored: None,
            fetching: Fetching::default(),
            reads: Reads::default(),
            changing: Changing::default(),
            announced: Slot(0),
            signed_us: None,
            routing: Routing::default(),
            lease_granted_until_us,
            confirmed_term: None,
            yields: (0, false),
            divergence: None,
            last_leader: None,
            counts: LedgerCounters::default(),
            now_us,
            roll,
            step: Step::default(),
        };
        ledger.apply_decided();
        Ok(ledger)
    }

    /// Processes one input.
    pub fn step(&mut self, now_us: u64, roll: u32, input: Input<M>) -> LedgerStep<M> {
        (self.now_us, self.roll) = (now_us, roll);
        if self.divergence.is_none() {
            self.handle(input);
            self.lead();
            self.route();
            self.note_leader();
        }
        std::mem::take(&mut self.step)
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
        self.leader_state.is_some() && !self.log.is_transferring()
    }

    /// Returns true if this node leads and has not yet sent its latest decided index to any node. The runtime passes
    /// [`Input::Announce`] when it has nothing else to send.
    pub fn must_announce(&self) -> bool {
        self.log.leads().is_some() && self.announced < self.log.store().decided()
    }

    /// Returns the number of pending transactions that were submitted at this node.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Returns the counters of this node.
    pub fn counts(&self) -> &LedgerCounters {
        &self.counts
    }

    /// Returns the divergence that has stopped this node, if any.
    pub fn divergence(&self) -> Option<&Divergence> {
        self.divergence.as_ref()
    }

    /// Returns the end of the time for which this node supports no candidate except the leader that it has confirmed.
    #[cfg(test)]
    pub(crate) fn lease_granted_until_us(&self) -> u64 {
        self.lease_granted_until_us
    }

    fn handle(&mut self, input: Input<M>) {
        match input {
            Input::Tick => self.tick(),
            Input::Message(from, message) => self.handle_message(from, message),
            Input::Submit { submission, tx, goal, deadline_us } => {
                self.submit(submission, tx, goal, deadline_us);
            }
            Input::Read { read, goal, consistency } => self.read(read, goal, consistency),
            Input::ChangeConfiguration(to) => self.change(to),
            Input::Compact => self.compact_now(),
            Input::Contacts(contacts) => self.fetching.contacts = contacts,
            Input::ShouldLead(node) => self.handle_hint(node),
            Input::TransferLeadership(to) => self.log(log::Input::TransferLeadership(to)),
            Input::Announce => self.log(log::Input::Announce),
            Input::Stored { term, slot } => self.log(log::Input::Stored { term, slot }),
            Input::SnapshotSaved { snapshot, chunks } => self.handle_saved(snapshot, chunks),
            Input::ChunkStored { snapshot, number } => self.handle_stored_chunk(snapshot, number),
            Input::SnapshotLoaded { snapshot, loaded } => self.handle_loaded(snapshot, loaded),
        }
    }

    fn tick(&mut self) {
        let leads = self.log.leads().is_some();
        let waits = self.now_us < self.lease_granted_until_us || self.now_us < self.yields.0;
        if leads || !waits {
            self.log(log::Input::Tick);
        }
        if self.log.leader().is_some() {
            self.yields.1 = false;
        }
        self.routing.all = true;
        self.end_late();
        self.end_all_refused();
        self.end_late_change();
        self.sign_unsigned_heads();
        self.send_configuration_certificate();
        self.continue_transfer();
        self.fetch();
        self.continue_round();
        self.compact();
        // A snapshot may have reached the disk since the last entry was applied.
        self.forget();
    }

    fn handle_message(&mut self, from: NodeId, message: MessageOf<M>) {
        match message {
            Message::Log(message) => self.handle_log_message(from, message),
            Message::Submit { tx_id, birth, goal, relayed_for } => {
                self.handle_submit(from, TxKey { id: tx_id, birth }, goal, relayed_for);
            }
            Message::SubmitExpired { tx_id, birth, through } => {
                self.handle_submit_expired(from, TxKey { id: tx_id, birth }, through);
            }
            Message::SignatureShare(share) => self.collect_share(from, share),
            Message::Certificate(certificate) => self.handle_certificate(from, &certificate),
            Message::Fetch { after, or_state } => self.serve(from, after, or_state),
            Message::History { first, entries, rest, certificate } => {
                self.handle_history(first, entries, &rest, &certificate);
            }
            Message::State(snapshot) => self.handle_state(from, snapshot),
            Message::FetchChunk { snapshot, number } => {
                self.step.at_once(Output::ReadChunk { to: from, snapshot, number });
            }
            Message::Chunk { snapshot, number, bytes } => self.handle_chunk(from, snapshot, number, bytes),
            Message::ConfirmTerm(term, round) => self.confirm_term(from, term, round),
            Message::TermConfirmed(term, round) => self.handle_term_confirmed(from, term, round),
        }
    }

    /// Passes a message to the log. A voter that has confirmed a leader's term supports no other candidate and does
    /// not become one itself, unless that leader no longer leads.
    fn handle_log_message(&mut self, from: NodeId, message: LogMessage<M>) {
        if self.is_released_by(from, &message) {
            self.lease_granted_until_us = self.now_us;
        }
        if self.may_pass_to_log(from, &message) {
            self.log(log::Input::Message(from, message));
        }
    }

    /// Starts a pre-vote if the hint names this node. Otherwise, if no leader is known, waits for the named node, once
    /// for each period without a leader. A false hint costs one round of messages, or that wait.
    fn handle_hint(&mut self, node: NodeId) {
        if node == self.me {
            self.yields.0 = self.now_us;
            self.log(log::Input::Campaign);
        }
        if node != self.me && self.log.leader().is_none() && !self.yields.1 {
            self.yields = (self.now_us + self.options.log.election_us, true);
        }
    }

    /// Passes an input to the log and applies the entries that it decides.
    fn log(&mut self, input: LogInput<M>) {
        let step = self.log.step(self.now_us, self.roll, input);
        let (announced, mut has_transferred) = (&mut self.announced, false);
        let sort = |output| match output {
            log::Output::Send(to, message) => {
                if let log::Message::Append(append) = &message {
                    *announced = append.decided.max(*announced);
                }
                Inner::Output(Output::Send(to, Message::Log(message)))
            }
            log::Output::LeadershipTransferred(to) => {
                has_transferred = true;
                Inner::Output(Output::LeadershipTransferred(to))
            }
            log::Output::TransferFailed(why) => Inner::Output(Output::TransferFailed(why)),
            event => Inner::Event(event),
        };
        let events = self.step.absorb(step, sort, |input| match input {
            log::Input::Stored { term, slot } => Input::Stored { term, slot },
            // The log returns no other input.
            _ => Input::Tick,
        });
        if has_transferred {
            self.drop_lease();
            // This node does not compete with the target of the transfer.
            self.yields = (self.now_us + 2 * self.options.log.election_us, true);
        }
        for event in events {
            match event {
                log::Output::ProposalRejected(why) => self.handle_rejected_proposal(why),
                log::Output::Proposed(slot, term) => self.proposed(slot, term),
                log::Output::SnapshotOffered(from, snapshot) => self.handle_offer(from, snapshot),
                _ => {}
            }
        }
        self.apply_decided();
    }

    /// Sends a message that depends on no record of this node, or on decided entries only: a request, or certified history.
    fn send_at_once(&mut self, to: NodeId, message: MessageOf<M>) {
        self.answer_caller(Output::Send(to, message));
    }

    /// Sends a message when the records of this step and of all earlier steps are on disk.
    fn send(&mut self, to: NodeId, message: MessageOf<M>) {
        self.step.hold(Output::Send(to, message));
    }

    /// Performs an output that depends on decided entries only, which a majority has on disk: the answer to a caller. A leader that
    /// does not send early counts itself before its disk has the entry, so that its answers wait for the disk.
    fn answer_caller(&mut self, output: OutputOf<M>) {
        if self.options.log.early || self.log.leads().is_none() {
            self.step.at_once(output);
        } else {
            self.step.hold(output);
        }
    }

    /// Applies the decided entries: each once and in order. A missing entry stops the loop; nothing replaces it.
    fn apply_decided(&mut self) {
        let before = self.state.index;
        if self.log.store().snapshot().last.slot > self.state.index {
            self.restart();
        }
        while self.divergence.is_none() && self.state.index < self.log.store().decided() {
            let slot = self.state.index.next();
            let Some(entry) = self.log.store().entry(slot).cloned() else { return };
            let before = self.state.written;
            self.apply(slot, entry);
            self.take_snapshot(before);
        }
        if self.state.index > before {
            self.sign_head_if_due();
        }
    }

    /// Continues from the state of a snapshot that replaces entries.
    fn restart(&mut self) {
        let Some(state) = self.restored.take() else { return };
        let before = std::mem::replace(&mut self.state, state).index;
        self.leader_state = None;
        self.history.clear();
        self.history_ends.clear();
        self.end_done();
        self.note_skipped(before);
        self.merge_configuration_certificates();
    }

    fn apply(&mut self, slot: Slot, entry: LogEntry<M>) {
        let applied = match &mut self.leader_state {
            Some(leader_state) if leader_state.term == entry.term => {
                self.state.settle_oldest(slot, &entry, &mut leader_state.over)
            }
            _ => self.state.apply(slot, &entry),
        };
        match applied {
            Ok(()) => {
                self.end_change(slot, &entry);
                if let log::EntryPayload::Value(value) = &entry.payload {
                    self.remove_from_flight(value.tx_id);
                    self.end(value.tx_id);
                }
                self.history.push_back(entry);
                self.history_ends.push_back(self.state.written);
                self.forget();
            }
            Err(divergence) => self.stop(divergence),
        }
    }

    /// Keeps the last `kept` entries, up to `kept_bytes`, and all entries that the log has, and the certificates for
    /// them.
    fn forget(&mut self) {
        let base = self.log.store().snapshot().last.slot;
        while self.first_kept() <= base {
            let after_first =
                self.history_ends.front().map_or(0, |end| self.state.written.saturating_sub(*end));
            if self.history.len() <= self.options.kept && after_first <= self.options.kept_bytes as u64 {
                break;
            }
            self.history.pop_front();
            self.history_ends.pop_front();
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
        if leader.is_some() && leader != self.last_leader {
            self.counts.leader_changes += u64::from(self.last_leader.is_some());
            self.last_leader = leader;
        }
    }

    fn stop(&mut self, divergence: Divergence) {
        self.step.at_once(Output::Diverged(divergence.clone()));
        self.divergence = Some(divergence);
    }
}

impl<M: ReplicatedMachine, N: Notary> Core for Ledger<M, N> {
    type Input = Input<M>;
    type Record = Record<M>;
    type Output = OutputOf<M>;

    fn step(&mut self, now_us: u64, roll: Roll<'_>, input: Input<M>) -> LedgerStep<M> {
        Ledger::step(self, now_us, roll(), input)
    }
}

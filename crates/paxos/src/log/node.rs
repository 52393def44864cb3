//! A node of the log: its inputs, its outputs, and the step function.

use holdoff_driver::{Core, Roll, Step, StepOf};
use serde::{Deserialize, Serialize};

use super::election::Votes;
use super::progress::{Occasion, Progress};
use super::transfer::Transfer;
use super::{Entry, EntryPayload, EntrySize, Message, Record, Snapshot, Store, Term};
use crate::{Configuration, NodeId, Slot};

/// An input of a node.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Input<V, S> {
    /// Time has passed.
    Tick,
    /// A message from another node has arrived.
    Message(NodeId, Message<V, S>),
    /// A client proposes a value.
    Propose(V),
    /// A client proposes another configuration.
    ChangeConfiguration(Configuration),
    /// These entries are decided. The caller has verified a proof of it; the sender need not be the leader.
    Learn {
        /// The slot of the first entry.
        first: Slot,
        /// The entries.
        entries: Vec<Entry<V>>,
    },
    /// This snapshot covers decided slots. The caller has verified a proof of it, or a leader has offered it. A snapshot
    /// that ends at the same entry as the current snapshot replaces it.
    RestoreSnapshot(Snapshot<S>),
    /// This is the state after a decided slot: the node drops the entries up to it.
    Compact {
        /// The last slot that the state covers.
        through: Slot,
        /// The state of the state machine.
        state: S,
    },
    /// The log of this term is on this node's disk up to this slot. The driver returns it when it has stored a step of a
    /// leader.
    Stored {
        /// The leader's term.
        term: Term,
        /// The last stored slot.
        slot: Slot,
    },
    /// A hint that this node should lead. Unless the node hears from a leader, it starts a pre-vote at the first tick
    /// at which it has not heard from a leader for `election_us`, without the random part of the election timeout.
    Campaign,
    /// A client asks this node to transfer leadership to another voter.
    TransferLeadership(NodeId),
    /// Followers wait for the decided slot. A leader that has no entries to send announces it now instead of with its
    /// next heartbeat, to the followers that answer.
    Announce,
}

/// An action for the caller, to be performed once the records of the step are stored.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Output<V, S> {
    /// Send this message to a node.
    Send(NodeId, Message<V, S>),
    /// The proposal has this slot. The proposal is decided when the slot is decided, if the slot's entry is of this
    /// term then.
    Proposed(Slot, Term),
    /// The node has refused the proposal.
    ProposalRejected(Rejection),
    /// All slots up to this slot are decided: apply those that are not applied yet.
    Decided(Slot),
    /// A leader offers this snapshot of decided slots. The caller fetches the state that belongs to it, and passes
    /// [`Input::RestoreSnapshot`].
    SnapshotOffered(NodeId, Snapshot<S>),
    /// A snapshot has replaced entries: restart the state machine from its state.
    Installed(Slot),
    /// This node has stepped down and told that node to start an election. Whether that node becomes leader depends on
    /// the voters.
    LeadershipTransferred(NodeId),
    /// The leadership transfer has failed.
    TransferFailed(Rejection),
}

/// The reason for a rejection. The node's state has not changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum Rejection {
    /// Another node leads, or there is no leader.
    #[error("this node is not the leader: retry at {0:?}")]
    NotLeading(Option<NodeId>),
    /// The inherited entries are not decided yet.
    #[error("this leader has not decided its inherited entries yet: retry")]
    NotReady,
    /// A configuration change is in progress.
    #[error("a configuration change is in progress: retry when it is decided")]
    Changing,
    /// The change would add or remove more than one voter.
    #[error("a configuration change may add or remove one voter only")]
    MoreThanOneVoter,
    /// The leader has reached its limit of undecided entries.
    #[error("the leader has reached its limit of undecided entries: retry later")]
    Full,
    /// A leadership transfer is in progress.
    #[error("a leadership transfer is in progress: retry at the new leader")]
    Transferring,
    /// The target is not one of the other voters.
    #[error("{0} is not one of the other voters")]
    NotAVoter(NodeId),
    /// The target did not receive the whole log in time.
    #[error("the transfer target did not receive the whole log in time: retry")]
    TransferTimedOut,
}

/// A replica of the log, which votes, follows, and may become leader.
///
/// The caller passes every event to [`Node::step`], with a time that never goes back and a random number. It stores the
/// records of each step, in order, and then performs the outputs.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Node<V, S> {
    pub(super) me: NodeId,
    pub(super) options: Options,
    pub(super) store: Store<V, S>,
    pub(super) role: Role,
    pub(super) transfer: Option<Transfer>,
    /// When this node last heard from a leader.
    pub(super) heard_us: Option<u64>,
    pub(super) deadline_us: u64,
    /// When this node starts a pre-vote because of a hint, and when it last did so.
    pub(super) hinted_us: Option<u64>,
    pub(super) last_hinted_us: Option<u64>,
    /// The highest attempt that caused a refusal under the active configuration.
    pub(super) highest_attempt: u64,
    pub(super) now_us: u64,
    pub(super) roll: u32,
    pub(super) records: Vec<Record<V, S>>,
    pub(super) outputs: Vec<Output<V, S>>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Role {
    Follower(Option<NodeId>),
    Candidate { is_pre_vote: bool, term: Term, votes: Votes },
    Leader(Leader),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Leader {
    pub(super) term: Term,
    /// The last slot of the log that the leader began with.
    pub(super) inherited: Slot,
    /// The slot of the no-op entry that must be decided before the leader serves. None if the inherited log ends with
    /// an undecided configuration change.
    pub(super) no_op: Option<Slot>,
    pub(super) followers: Vec<Progress>,
    /// The last slot that the caller has reported to be on this node's disk. None before the first report of this term.
    pub(super) stored: Option<Slot>,
    pub(super) heartbeat_sent_us: u64,
}

impl<V: Clone + EntrySize, S: Clone> Node<V, S> {
    /// Creates a node that continues from its stored state.
    pub fn new(me: NodeId, options: Options, store: Store<V, S>, now_us: u64, roll: u32) -> Self {
        let mut node = Self {
            me,
            options,
            store,
            role: Role::Follower(None),
            transfer: None,
            heard_us: None,
            deadline_us: 0,
            hinted_us: None,
            last_hinted_us: None,
            highest_attempt: 0,
            now_us,
            roll,
            records: Vec::new(),
            outputs: Vec::new(),
        };
        node.restart_election_timer();
        node
    }

    /// Processes an input. Returns the records to store and the outputs to perform.
    pub fn step(&mut self, now_us: u64, roll: u32, input: Input<V, S>) -> StepOf<Self> {
        (self.now_us, self.roll) = (now_us, roll);
        match input {
            Input::Tick => self.tick(),
            Input::Message(from, message) => self.handle_message(from, message),
            Input::Propose(value) => self.propose(EntryPayload::Value(value)),
            Input::ChangeConfiguration(to) => self.propose(EntryPayload::Configuration(to)),
            Input::Learn { first, entries } => self.learn(first, entries),
            Input::RestoreSnapshot(snapshot) => self.restore_snapshot(snapshot),
            Input::Compact { through, state } => self.compact(through, state),
            Input::Stored { term, slot } => self.stored(term, slot),
            Input::Campaign => self.schedule_hinted_pre_vote(),
            Input::TransferLeadership(to) => self.transfer_leadership(to),
            Input::Announce => self.send_to_all(Occasion::Announcement),
        }
        self.advance_transfer();
        let mut step = Step::default();
        self.send_early(&mut step);
        step.hold_all(std::mem::take(&mut self.records), std::mem::take(&mut self.outputs));
        step
    }

    /// Returns the node's stored state: its promises and its log.
    pub fn store(&self) -> &Store<V, S> {
        &self.store
    }

    /// Returns the leader, as far as this node knows.
    pub fn leader(&self) -> Option<NodeId> {
        match &self.role {
            Role::Follower(leader) => *leader,
            Role::Candidate { .. } => None,
            Role::Leader(_) => Some(self.me),
        }
    }

    /// Returns the term in which this node leads, if it leads.
    pub fn leads(&self) -> Option<Term> {
        match &self.role {
            Role::Leader(leader) => Some(leader.term),
            _ => None,
        }
    }

    /// Returns whether this node leads and all entries that it inherited are decided.
    pub fn is_ready(&self) -> bool {
        matches!(&self.role, Role::Leader(leader)
            if leader.no_op.is_some_and(|no_op| no_op <= self.store.decided()))
    }

    /// Returns whether this node leads and a leadership transfer is in progress.
    pub fn is_transferring(&self) -> bool {
        self.transfer.is_some()
    }

    fn tick(&mut self) {
        match &self.role {
            Role::Leader(_) => self.tick_leader(),
            _ if self.now_us >= self.deadline_us => self.start_pre_vote(),
            _ if self.hinted_us.is_some_and(|hinted_us| self.now_us >= hinted_us) => {
                self.start_hinted_pre_vote();
            }
            _ => {}
        }
    }

    fn handle_message(&mut self, from: NodeId, message: Message<V, S>) {
        match message {
            Message::RequestVote(candidacy) => self.handle_vote_request(from, candidacy),
            Message::VoteReply { is_pre_vote, term, granted: true, .. } => {
                self.handle_vote(from, is_pre_vote, term);
            }
            Message::VoteReply { is_pre_vote, term, granted: false, promised, decided_change } => {
                self.handle_vote_refusal(from, is_pre_vote, term, promised, decided_change);
            }
            Message::Append(append) => self.handle_append(from, *append),
            Message::InstallSnapshot { term, inherited, snapshot } => {
                self.handle_install_snapshot(from, term, inherited, snapshot);
            }
            Message::AppendAccepted { term, slot } => self.handle_append_accepted(from, term, slot),
            Message::AppendRejected { term, have } => self.handle_append_rejected(from, term, have),
            Message::TimeoutNow { term, to } => self.handle_timeout_now(from, term, to),
            Message::StaleTerm { term, promised, decided_change } => {
                self.handle_stale_term(from, term, promised, decided_change);
            }
        }
    }

    /// Applies a record in memory now, and adds it to the records that must be on disk before the outputs are
    /// performed.
    pub(super) fn persist(&mut self, record: Record<V, S>) {
        self.store.apply(record.clone());
        self.records.push(record);
    }

    pub(super) fn send(&mut self, to: NodeId, message: Message<V, S>) {
        self.outputs.push(Output::Send(to, message));
    }

    /// Restarts the election timeout, drawn between one and two times `election_us`, and drops a pending hint.
    pub(super) fn restart_election_timer(&mut self) {
        let spread = u64::from(self.roll) * self.options.election_us / u64::from(u32::MAX);
        self.deadline_us = self.now_us + self.options.election_us + spread;
        self.hinted_us = None;
    }

    /// Marks all slots up to a slot as decided, as far as the log has entries.
    pub(super) fn decide(&mut self, through: Slot) {
        let before = self.store.decided();
        let configuration_changed = self.store.decide(through);
        let decided = self.store.decided();
        if decided > before {
            self.outputs.push(Output::Decided(decided));
        }
        if configuration_changed {
            // After a restart the node must know under which configuration it may become a candidate.
            self.persist(Record::Decided(decided));
            self.apply_configuration();
        }
    }
}

/// The timeouts and limits of a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Options {
    /// The minimum election timeout. A node that has not heard from a leader for this time considers it failed. The
    /// election timeout is drawn between one and two times this value.
    pub election_us: u64,
    /// The heartbeat interval.
    pub heartbeat_us: u64,
    /// The maximum number of entries in a message to a follower that is behind.
    pub batch: usize,
    /// The maximum size of the entries in a message, in bytes. A single entry may be longer.
    pub batch_bytes: u64,
    /// The maximum number of unacknowledged entries on their way to a follower.
    pub window: u64,
    /// The size of the unacknowledged entries on their way to a follower, in bytes, from which on the leader sends it no
    /// further message with entries.
    pub window_bytes: u64,
    /// The maximum number of undecided entries of a leader.
    pub undecided: u64,
    /// Whether a leader sends entries while its own disk writes them. If so, the leader counts itself when the driver returns
    /// [`Input::Stored`].
    pub early: bool,
}

impl Default for Options {
    fn default() -> Self {
        let [election_us, heartbeat_us] = [1_000_000, 150_000];
        let [batch_bytes, window_bytes] = [1 << 20, 8 << 20];
        let (batch, window, undecided, early) = (256, 1024, 4096, false);
        Self { election_us, heartbeat_us, batch, batch_bytes, window, window_bytes, undecided, early }
    }
}

impl<V: Clone + EntrySize, S: Clone> Core for Node<V, S> {
    type Input = Input<V, S>;
    type Record = Record<V, S>;
    type Output = Output<V, S>;

    fn step(&mut self, now_us: u64, roll: Roll<'_>, input: Input<V, S>) -> StepOf<Self> {
        Node::step(self, now_us, roll(), input)
    }
}

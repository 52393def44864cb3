//! A node of the log: its inputs, its outputs, and the step function.

use super::handing::Handing;
use super::progress::Progress;
use super::{Entry, Message, Options, Payload, Record, Snapshot, Step, Store, Term};
use crate::{Configuration, NodeId, Slot, Tally};

/// An input of a node.
#[allow(
    clippy::large_enum_variant,
    reason = "what comes most often is the largest: a box would cost each message"
)]
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Input<V, S> {
    /// Time has passed.
    Tick,
    /// A message from another node has arrived.
    Message(NodeId, Message<V, S>),
    /// A client proposes a value.
    Propose(V),
    /// A client proposes another configuration.
    Change(Configuration),
    /// These entries are decided. The caller has verified a proof of it; the sender need not be the leader.
    Learn {
        /// The slot of the first entry.
        first: Slot,
        /// The entries.
        entries: Vec<Entry<V>>,
    },
    /// This snapshot covers decided slots. The caller has verified a proof of it. A snapshot that ends at the same
    /// entry as the current snapshot replaces it.
    Rest(Snapshot<S>),
    /// This is the state after a decided slot: the node drops the entries up to it.
    Compact {
        /// The last slot that the state covers.
        through: Slot,
        /// The state of the state machine.
        state: S,
    },
    /// The content of [`Output::Stored`], returned to the node unchanged. Of several the last is enough.
    Stored {
        /// The leader's term.
        term: Term,
        /// The last stored slot.
        slot: Slot,
    },
    /// A hint that this node should lead. Unless the node hears from a leader, it starts a pre-vote at the first tick
    /// at which it has not heard from a leader for `election_us`, without the random part of the election timeout.
    Run,
    /// A client asks this node to transfer leadership to another voter.
    HandOver(NodeId),
    /// Followers wait for the decided slot. A leader that has no entries to send announces it now instead of with its
    /// next heartbeat.
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
    NotTaken(Refusal),
    /// All slots up to this slot are decided: apply those that are not applied yet.
    Decided(Slot),
    /// A snapshot has replaced entries: restart the state machine from its state.
    Installed(Slot),
    /// The log of this term is on this node's disk up to this slot: return it to the node as [`Input::Stored`].
    Stored {
        /// The leader's term.
        term: Term,
        /// The last stored slot.
        slot: Slot,
    },
    /// This node has stepped down and told that node to start an election. Whether that node becomes leader depends on
    /// the voters.
    HandedOver(NodeId),
    /// The leadership transfer has failed.
    NotHandedOver(Refusal),
}

/// The reason for a refusal. The node's state has not changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Refusal {
    /// Another node leads, or there is no leader.
    #[error("this node does not lead: ask {0:?}")]
    NotLeading(Option<NodeId>),
    /// The inherited entries are not decided yet.
    #[error("this leader has only begun: ask again")]
    NotReady,
    /// A configuration change is in progress.
    #[error("the configuration is being changed: ask again")]
    Changing,
    /// The change would add or remove more than one voter.
    #[error("one voter comes or goes at a time")]
    TooFar,
    /// The leader has reached its limit of undecided entries.
    #[error("too much is undecided: ask again")]
    Full,
    /// A leadership transfer is in progress.
    #[error("this leader is handing over: ask again")]
    HandingOver,
    /// The target is not one of the other voters.
    #[error("{0} is none of the other voters")]
    NoVoter(NodeId),
    /// The target did not receive the whole log in time.
    #[error("whoever was to lead has not caught up in time: ask again")]
    TooLate,
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
    pub(super) handing: Option<Handing>,
    /// When this node last heard from a leader.
    pub(super) heard_us: Option<u64>,
    pub(super) deadline_us: u64,
    /// When this node starts a pre-vote because of a hint, and when it last did so.
    pub(super) urged_us: Option<u64>,
    pub(super) ran_us: Option<u64>,
    /// The highest attempt that caused a refusal under the active configuration.
    pub(super) seen: u64,
    pub(super) now_us: u64,
    pub(super) roll: u32,
    pub(super) records: Vec<Record<V, S>>,
    pub(super) outputs: Vec<Output<V, S>>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Role {
    Follower(Option<NodeId>),
    Candidate { trial: bool, term: Term, granted: Tally },
    Leader(Leader),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Leader {
    pub(super) term: Term,
    /// The last slot of the log that the leader began with.
    pub(super) inherited: Slot,
    /// The slot of the no-op entry that must be decided before the leader serves. None if the inherited log ends with
    /// an undecided configuration change.
    pub(super) barrier: Option<Slot>,
    pub(super) followers: Vec<Progress>,
    /// The last slot that the caller has reported to be on this node's disk. None before the first report of this term.
    pub(super) stored: Option<Slot>,
    pub(super) beat_us: u64,
}

impl<V: Clone, S: Clone> Node<V, S> {
    /// Creates a node that continues from its stored state.
    pub fn new(me: NodeId, options: Options, store: Store<V, S>, now_us: u64, roll: u32) -> Self {
        let mut node = Self {
            me,
            options,
            store,
            role: Role::Follower(None),
            handing: None,
            heard_us: None,
            deadline_us: 0,
            urged_us: None,
            ran_us: None,
            seen: 0,
            now_us,
            roll,
            records: Vec::new(),
            outputs: Vec::new(),
        };
        node.wait();
        node
    }

    /// Processes an input. Returns the records to store and the outputs to perform.
    pub fn step(&mut self, now_us: u64, roll: u32, input: Input<V, S>) -> Step<Record<V, S>, Output<V, S>> {
        (self.now_us, self.roll) = (now_us, roll);
        match input {
            Input::Tick => self.tick(),
            Input::Message(from, message) => self.hear(from, message),
            Input::Propose(value) => self.propose(Payload::Value(value)),
            Input::Change(to) => self.propose(Payload::Configuration(to)),
            Input::Learn { first, entries } => self.learn(first, entries),
            Input::Rest(snapshot) => self.rest(snapshot),
            Input::Compact { through, state } => self.compact(through, state),
            Input::Stored { term, slot } => self.stored(term, slot),
            Input::Run => self.urge(),
            Input::HandOver(to) => self.hand_over_to(to),
            Input::Announce => self.beat(),
        }
        self.hand_on();
        let early = self.early();
        let (records, outputs) = (std::mem::take(&mut self.records), std::mem::take(&mut self.outputs));
        Step::new(early, records, outputs)
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
            if leader.barrier.is_some_and(|barrier| barrier <= self.store.decided()))
    }

    /// Returns whether this node leads and a leadership transfer is in progress.
    pub fn hands_over(&self) -> bool {
        self.handing.is_some()
    }

    fn tick(&mut self) {
        match &self.role {
            Role::Leader(_) => self.lead_on(),
            _ if self.now_us >= self.deadline_us => self.run_for_trial(),
            _ if self.urged_us.is_some_and(|urged_us| self.now_us >= urged_us) => self.run_when_urged(),
            _ => {}
        }
    }

    fn hear(&mut self, from: NodeId, message: Message<V, S>) {
        match message {
            Message::Vote(candidacy) => self.vote(from, candidacy),
            Message::Voted { trial, term, granted, promised } => {
                self.voted(from, trial, term, granted, promised);
            }
            Message::Append(append) => self.follow(from, append),
            Message::Install { term, inherited, snapshot } => self.install(from, term, inherited, snapshot),
            Message::Matched { term, slot } => self.matched(from, term, slot),
            Message::Behind { term, have } => self.behind(from, term, have),
            Message::Lead { term, to } => self.relieve(from, term, to),
            Message::Refused { term, promised } => self.refused(from, term, promised),
        }
    }

    /// Applies a record in memory now, and adds it to the records that must be on disk before the outputs are
    /// performed.
    pub(super) fn keep(&mut self, record: Record<V, S>) {
        self.store.apply(record.clone());
        self.records.push(record);
    }

    pub(super) fn send(&mut self, to: NodeId, message: Message<V, S>) {
        self.outputs.push(Output::Send(to, message));
    }

    /// Restarts the election timeout, drawn between one and two times `election_us`, and drops a pending hint.
    pub(super) fn wait(&mut self) {
        let spread = u64::from(self.roll) * self.options.election_us / u64::from(u32::MAX);
        self.deadline_us = self.now_us + self.options.election_us + spread;
        self.urged_us = None;
    }

    /// Marks all slots up to a slot as decided, as far as the log has entries.
    pub(super) fn decide(&mut self, through: Slot) {
        let before = self.store.decided();
        let others_decide = self.store.decide(through);
        let decided = self.store.decided();
        if decided > before {
            self.outputs.push(Output::Decided(decided));
        }
        if others_decide {
            // After a restart the node must know under which configuration it may become a candidate.
            self.keep(Record::Decided(decided));
            self.hand_over();
        }
    }
}

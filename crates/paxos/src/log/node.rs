//! One node: what comes in, and what follows from it.

use super::handing::Handing;
use super::progress::Progress;
use super::{Entry, Message, Options, Payload, Record, Snapshot, Step, Store, Term};
use crate::{Configuration, NodeId, Slot, Tally};

/// What comes to a node.
#[allow(
    clippy::large_enum_variant,
    reason = "what comes most often is the largest: a box would cost each message"
)]
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Input<V, S> {
    /// Time has passed.
    Tick,
    /// Another node has said something.
    Message(NodeId, Message<V, S>),
    /// Somebody wants this to be decided.
    Propose(V),
    /// Somebody wants these to decide from then on.
    Change(Configuration),
    /// These entries are decided, as somebody has proven: they need not come from a leader.
    Learn {
        /// The slot of the first.
        first: Slot,
        /// The entries.
        entries: Vec<Entry<V>>,
    },
    /// This stands for decided slots, as somebody has proven; or for those that the one before stands for.
    Rest(Snapshot<S>),
    /// This is the state after so many decided slots: their entries can go.
    Compact {
        /// The last slot that is in it.
        through: Slot,
        /// What they have made of the machine.
        state: S,
    },
    /// What [`Output::Stored`] has said, given back as it came. Of several the last is enough.
    Stored {
        /// The leader's.
        term: Term,
        /// The last slot.
        slot: Slot,
    },
    /// Others think that this node should lead: unless it hears of a leader, it asks whether it may as soon as it ticks and
    /// others have given the last one up, without any patience beyond that.
    Run,
    /// Somebody wants this node to lead no longer, and that one to.
    HandOver(NodeId),
}

/// What a node wants done, once its records are stored.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Output<V, S> {
    /// Say this to another node.
    Send(NodeId, Message<V, S>),
    /// What was proposed stands in this slot. It is decided when that slot is, if it is still this term's then.
    Proposed(Slot, Term),
    /// What was proposed is not taken.
    NotTaken(Refusal),
    /// All up to this slot is decided: apply what was not.
    Decided(Slot),
    /// A snapshot has come in the place of entries: begin anew from its state.
    Installed(Slot),
    /// The log of this term is on this node's disk up to this slot: tell it so by [`Input::Stored`].
    Stored {
        /// The leader's.
        term: Term,
        /// The last slot.
        slot: Slot,
    },
    /// This node leads no longer, and has told that one to lead. Whether it comes to, the voters decide.
    HandedOver(NodeId),
    /// It was not handed over.
    NotHandedOver(Refusal),
}

/// Why something is not done. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Refusal {
    /// Another node leads, or nobody.
    #[error("this node does not lead: ask {0:?}")]
    NotLeading(Option<NodeId>),
    /// What was inherited is not decided yet.
    #[error("this leader has only begun: ask again")]
    NotReady,
    /// Who decides is being changed.
    #[error("the configuration is being changed: ask again")]
    Changing,
    /// More than one voter would come or go at once.
    #[error("one voter comes or goes at a time")]
    TooFar,
    /// Too much is undecided.
    #[error("too much is undecided: ask again")]
    Full,
    /// Another is to lead.
    #[error("this leader is handing over: ask again")]
    HandingOver,
    /// It is not one of the other voters.
    #[error("{0} is none of the other voters")]
    NoVoter(NodeId),
    /// It did not get all of the log in time.
    #[error("whoever was to lead has not caught up in time: ask again")]
    TooLate,
}

/// A voter, that may come to lead.
///
/// Give it what happens by [`Node::step`], with a time that never goes back and a number drawn at random; store its
/// records, in order; then do what it wants done.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Node<V, S> {
    pub(super) me: NodeId,
    pub(super) options: Options,
    pub(super) store: Store<V, S>,
    pub(super) role: Role,
    pub(super) handing: Option<Handing>,
    /// When a living leader was last heard of.
    pub(super) heard_us: Option<u64>,
    pub(super) deadline_us: u64,
    /// When it means to run because others think that it should, and when it last did.
    pub(super) urged_us: Option<u64>,
    pub(super) ran_us: Option<u64>,
    /// The latest attempt that was in somebody's way.
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
    /// How long the log was that it began with.
    pub(super) inherited: Slot,
    /// What must be decided before it serves; none while who decides is being changed.
    pub(super) barrier: Option<Slot>,
    pub(super) followers: Vec<Progress>,
    /// How much of its log it was told to be on its own disk.
    pub(super) stored: Option<Slot>,
    pub(super) beat_us: u64,
}

impl<V: Clone, S: Clone> Node<V, S> {
    /// A node that goes on from what it has stored.
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

    /// Something happens.
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
        }
        self.hand_on();
        let early = self.early();
        let (records, outputs) = (std::mem::take(&mut self.records), std::mem::take(&mut self.outputs));
        Step::new(early, records, outputs)
    }

    /// Its promise and its log.
    pub fn store(&self) -> &Store<V, S> {
        &self.store
    }

    /// Who leads, as far as this node knows.
    pub fn leader(&self) -> Option<NodeId> {
        match &self.role {
            Role::Follower(leader) => *leader,
            Role::Candidate { .. } => None,
            Role::Leader(_) => Some(self.me),
        }
    }

    /// The term it leads in, if it does.
    pub fn leads(&self) -> Option<Term> {
        match &self.role {
            Role::Leader(leader) => Some(leader.term),
            _ => None,
        }
    }

    /// Whether it leads, and all that it inherited is decided.
    pub fn is_ready(&self) -> bool {
        matches!(&self.role, Role::Leader(leader)
            if leader.barrier.is_some_and(|barrier| barrier <= self.store.decided()))
    }

    /// Whether it leads, and another is to.
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

    /// Keeps a record: in memory now, and on disk before anything else is said.
    pub(super) fn keep(&mut self, record: Record<V, S>) {
        self.store.apply(record.clone());
        self.records.push(record);
    }

    pub(super) fn send(&mut self, to: NodeId, message: Message<V, S>) {
        self.outputs.push(Output::Send(to, message));
    }

    /// Does not look for another leader for a while.
    pub(super) fn wait(&mut self) {
        let spread = u64::from(self.roll) * self.options.election_us / u64::from(u32::MAX);
        self.deadline_us = self.now_us + self.options.election_us + spread;
        self.urged_us = None;
    }

    /// All up to a slot is decided, as far as there is any.
    pub(super) fn decide(&mut self, through: Slot) {
        let before = self.store.decided();
        let others_decide = self.store.decide(through);
        let decided = self.store.decided();
        if decided > before {
            self.outputs.push(Output::Decided(decided));
        }
        if others_decide {
            // Another life must know under which configuration it may ask to lead.
            self.keep(Record::Decided(decided));
            self.hand_over();
        }
    }
}

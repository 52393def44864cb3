//! What comes to a node, and what it wants done.

use holdoff_paxos::log::{self, Term};
use holdoff_paxos::{Configuration, NodeId, Slot};
use serde::{Deserialize, Serialize};

use super::NotChanged;
use crate::certificate::{Certificate, Seal};
use crate::entry::{Entry, Hash, Replicated, TxId, Value};
use crate::machine::{Failed, Machine};
use crate::state::{Checkpoint, Tear};

/// What must be on disk before anybody may know of it: all of it is the log's.
pub type Record<M> = log::Record<Value<M>, Checkpoint<<M as Machine>::Answer>>;
/// What a node has on disk.
pub type Store<M> = log::Store<Value<M>, Checkpoint<<M as Machine>::Answer>>;
/// What nodes of this machine say to each other.
pub type LetterOf<M> = Letter<<M as Machine>::Goal, <M as Machine>::Diff, <M as Machine>::Answer>;
/// What nodes of this machine want done.
pub type OutputOf<M> = Output<<M as Machine>::Goal, <M as Machine>::Diff, <M as Machine>::Answer>;
/// What must be stored, and what may be done then. Nothing leaves before the disk but what is early.
pub type Step<M> = log::Step<Record<M>, OutputOf<M>>;

/// A read's name, given by whoever asks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReadId(pub u64);

/// How fresh an answer must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum How {
    /// What this node has, however old it is.
    Local,
    /// Not older than the question: the leader asks a majority whether it still leads.
    Quorum,
    /// Not older than the question, if clocks drift no more than is stated: the leader was promised so much time.
    Lease,
}

/// What comes to a node.
#[allow(
    clippy::large_enum_variant,
    reason = "what comes most often is the largest: a box would cost each message"
)]
#[derive(Clone, Debug)]
pub enum Input<M: Replicated> {
    /// Time has passed.
    Tick,
    /// Another node has said something.
    Message(NodeId, LetterOf<M>),
    /// Somebody wants this done.
    Submit {
        /// The transaction's name: the same name again is the same transaction.
        tx_id: TxId,
        /// What is wanted.
        goal: M::Goal,
    },
    /// Somebody wants to know something. What the goal would change is not changed.
    Read {
        /// Its name.
        read: ReadId,
        /// What to look for.
        goal: M::Goal,
        /// How fresh the answer must be.
        how: How,
    },
    /// Somebody wants these to decide from then on: one comes or goes at a time. What becomes of it is
    /// [`Output::Changed`] or [`Output::NotChanged`].
    Change(Configuration),
    /// A snapshot takes the place of all entries that are decided, now and not when there are many.
    Compact,
    /// These, too, may have what is missing here, whether they vote or not: those that are known to vote may all be gone.
    Contacts(Vec<NodeId>),
    /// This node should lead, others say. It is a hint, and may be a lie.
    ShouldLead(NodeId),
    /// Somebody wants this node to lead no longer, and that one to.
    HandOver(NodeId),
    /// What [`Output::Stored`] has said, given back as it came. Of several the last is enough.
    Stored {
        /// The leader's.
        term: Term,
        /// The last slot.
        slot: Slot,
    },
}

/// What nodes say to each other.
#[allow(
    clippy::large_enum_variant,
    reason = "what comes most often is the largest: a box would cost each message"
)]
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Letter<G, D, A> {
    /// The log's.
    Log(log::Message<Entry<G, D, A>, Checkpoint<A>>),
    /// Somebody wants this done, and whoever gets this is thought to lead, or to know who does.
    Submit {
        /// The transaction.
        tx_id: TxId,
        /// What is wanted.
        goal: G,
        /// Whether it was passed on already: that is done once.
        relayed: bool,
    },
    /// A voter has learned that something is decided.
    Seal(Seal),
    /// A majority of voters has.
    Certified(Certificate),
    /// What comes after this?
    Fetch {
        /// The last place that is known.
        after: Slot,
        /// Whether a whole state will do, if the entries are not kept any more.
        or_state: bool,
    },
    /// What comes from a place on.
    History {
        /// The place of the first entry.
        first: Slot,
        /// The entries.
        entries: Vec<log::Entry<Entry<G, D, A>>>,
        /// The hashes of the entries after them, up to what the certificate is for.
        rest: Vec<Hash>,
        /// Who says that they are decided.
        certificate: Certificate,
    },
    /// The whole state at a place, in the place of entries; its proof is in it.
    State(log::Snapshot<Checkpoint<A>>),
    /// Is this still the term?
    Probe(Term, u64),
    /// It is.
    Probed(Term, u64),
}

/// What came of a transaction.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Outcome<A> {
    /// It is done.
    Committed {
        /// Where it stands.
        index: Slot,
        /// What it answered.
        result: A,
    },
    /// It stands in the history, and has changed nothing.
    Failed {
        /// Where it stands.
        index: Slot,
        /// Why it came to nothing.
        why: Failed,
    },
    /// Nobody was found to lead, so nobody was asked: of this submission nothing will come. Submit it again. What may come
    /// of an earlier one under the same name, of which nothing was known, is as unknown as before.
    NoQuorum,
    /// It may happen yet, or have happened. Submit it again under the same name: it happens once at most.
    Unknown,
    /// Too many are under way here: it has not happened, and will not. Submit it later.
    TooMany,
}

/// What a node wants done, once its records are stored.
#[allow(
    clippy::large_enum_variant,
    reason = "what comes most often is the largest: a box would cost each message"
)]
#[derive(Clone, PartialEq, Debug)]
pub enum Output<G, D, A> {
    /// Say this to another node.
    Send(NodeId, Letter<G, D, A>),
    /// A transaction that was submitted here has come to its end.
    Ended(TxId, Outcome<A>),
    /// A transaction goes to another leader, because it changed: worth a line in the log.
    Rerouted {
        /// The transaction.
        tx_id: TxId,
        /// Who was thought to lead.
        from: NodeId,
        /// Who does now.
        to: NodeId,
    },
    /// A read is answered.
    Answered {
        /// The read.
        read: ReadId,
        /// The last entry that the answer knows of.
        index: Slot,
        /// What it found.
        result: Result<A, Failed>,
    },
    /// A read cannot be answered here: ask whoever leads, if anybody does.
    NotAnswered(ReadId, Option<NodeId>),
    /// The log of this term is on this node's disk up to this slot: tell it so by [`Input::Stored`].
    Stored {
        /// The leader's.
        term: Term,
        /// The last slot.
        slot: Slot,
    },
    /// This node leads no longer, and has told that one to lead. Whether it comes to, the voters decide.
    HandedOver(NodeId),
    /// It was not handed over. Nothing has changed.
    NotHandedOver(log::Refusal),
    /// These vote from the place after this one on.
    Changed(Configuration, Slot),
    /// It does not come to that these vote, or is not known to.
    NotChanged(Configuration, NotChanged),
    /// What is decided does not fit what is here: this node has stopped. Its disk is to be looked at; a new one can take
    /// its place.
    Torn(Tear),
}

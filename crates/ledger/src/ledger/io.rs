//! The inputs, messages and outputs of a node.

use holdoff_paxos::log::{self, Term};
use holdoff_paxos::{Configuration, NodeId, Slot};
use serde::{Deserialize, Serialize};

use super::ChangeError;
use crate::certificate::{Certificate, SignatureShare};
use crate::entry::{Hash, ReplicatedMachine, Transaction, TransactionOf, TxId, TxKey};
use crate::machine::{GoalError, StateMachine};
use crate::state::{Checkpoint, Divergence, SnapshotContent, SnapshotDescription};

/// A record that must be on disk before any message depends on it. All records are records of the log.
pub type Record<M> = log::Record<TransactionOf<M>, Checkpoint>;
/// The content of a node's disk.
pub type Store<M> = log::Store<TransactionOf<M>, Checkpoint>;
/// The messages between nodes of this machine.
pub type MessageOf<M> =
    Message<<M as StateMachine>::Goal, <M as StateMachine>::Diff, <M as StateMachine>::Answer>;
/// The outputs of a node of this machine.
pub type OutputOf<M> =
    Output<<M as StateMachine>::Goal, <M as StateMachine>::Diff, <M as StateMachine>::Answer>;
/// The result of a step of a node of this machine.
pub type LedgerStep<M> = holdoff_driver::Step<Input<M>, Record<M>, OutputOf<M>>;

/// The id of a submission, chosen by the caller. Several submissions may have the same transaction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SubmissionId(pub u64);

/// The id of a read, chosen by the caller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReadId(pub u64);

/// The required freshness of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Consistency {
    /// The entries that this node has applied, however old.
    Local,
    /// All entries acknowledged before the read: a majority confirms that the leader's term is still current.
    Quorum,
    /// All entries acknowledged before the read, as long as clocks drift no more than `drift_ppm`: the leader uses its
    /// lease.
    Lease,
}

/// The inputs of a node.
#[allow(
    clippy::large_enum_variant,
    reason = "the most frequent variant is the largest: boxing it would cost an allocation for each message"
)]
#[derive(Clone, Debug)]
pub enum Input<M: ReplicatedMachine> {
    /// Time has passed.
    Tick,
    /// Another node has sent a message.
    Message(NodeId, MessageOf<M>),
    /// A caller submits a transaction. The outcome is [`Output::Ended`], at the deadline at the latest.
    Submit {
        /// The id of the submission.
        submission: SubmissionId,
        /// The transaction: a repeated id is the same transaction.
        tx: TxKey,
        /// The submitted goal.
        goal: M::Goal,
        /// The time at which the caller stops waiting.
        deadline_us: u64,
    },
    /// A caller submits a read. The node executes the goal and discards its changes.
    Read {
        /// The id of the read.
        read: ReadId,
        /// The goal to execute.
        goal: M::Goal,
        /// The required freshness of the answer.
        consistency: Consistency,
    },
    /// A caller requests this configuration. A change adds or removes one voter. The outcome is [`Output::Changed`] or
    /// [`Output::ChangeFailed`].
    ChangeConfiguration(Configuration),
    /// A caller requests a snapshot that replaces all decided entries now, without waiting for the usual number of
    /// entries. The node ignores the request if no majority has signed its current head.
    Compact,
    /// Further nodes that may have missing history, whether they vote or not: all known voters may be gone.
    Contacts(Vec<NodeId>),
    /// A hint that the named node should lead. The hint may be false.
    ShouldLead(NodeId),
    /// A caller requests that this node transfers leadership to the named node.
    TransferLeadership(NodeId),
    /// Other nodes wait for the decided index: see [`Ledger::must_announce`](super::Ledger::must_announce).
    Announce,
    /// The log of this term is on this node's disk up to this slot. The driver returns it after the write.
    Stored {
        /// The leader's term.
        term: Term,
        /// The last stored slot.
        slot: Slot,
    },
    /// The content of this snapshot is on disk: the answer to [`Output::SaveSnapshot`].
    SnapshotSaved {
        /// The id of the snapshot.
        snapshot: Hash,
        /// The number of chunks.
        chunks: u64,
    },
    /// A chunk is on disk: the answer to [`Output::StoreChunk`].
    ChunkStored {
        /// The id of the snapshot.
        snapshot: Hash,
        /// The number of the chunk.
        number: u64,
    },
    /// The content of a snapshot, or the number of a chunk that is missing or damaged: the answer to
    /// [`Output::LoadSnapshot`].
    SnapshotLoaded {
        /// The id of the snapshot.
        snapshot: Hash,
        /// The content.
        loaded: Result<Box<SnapshotContent<M>>, u64>,
    },
}

/// The messages between nodes.
#[allow(
    clippy::large_enum_variant,
    reason = "the most frequent variant is the largest: boxing it would cost an allocation for each message"
)]
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Message<G, D, A> {
    /// A message of the log.
    Log(log::Message<Transaction<G, D, A>, Checkpoint>),
    /// A transaction for the leader. The sender assumes that the receiver leads or knows the leader.
    Submit {
        /// The transaction id.
        tx_id: TxId,
        /// An index up to which the submitting node knows that the transaction is not in the history.
        birth: Slot,
        /// The submitted goal.
        goal: G,
        /// The submitting node, if the sender forwards the message for it: nodes forward a message once.
        relayed_for: Option<NodeId>,
    },
    /// The leader does not execute a transaction: it may have been committed, and the ledger may have forgotten it. No
    /// leader will ever execute a submission with this birth.
    SubmitExpired {
        /// The transaction id.
        tx_id: TxId,
        /// The birth of the submission.
        birth: Slot,
        /// The last index that the leader has applied.
        through: Slot,
    },
    /// A signature share: a voter has learned that a head is decided.
    SignatureShare(SignatureShare),
    /// A certificate: a majority of the voters has signed a head.
    Certificate(Certificate),
    /// A request for the history after an index.
    Fetch {
        /// The last index that the sender has applied.
        after: Slot,
        /// True if the sender accepts a whole state when the receiver no longer keeps the entries.
        or_state: bool,
    },
    /// A part of the history.
    History {
        /// The index of the first entry.
        first: Slot,
        /// The entries.
        entries: Vec<log::Entry<Transaction<G, D, A>>>,
        /// The hashes of the following entries, up to the index of the certificate.
        rest: Vec<Hash>,
        /// The certificate that proves the entries.
        certificate: Certificate,
    },
    /// The offer of a whole state instead of entries. It contains its certificate.
    State(SnapshotDescription),
    /// A request for a chunk of the content of a snapshot.
    FetchChunk {
        /// The id of the snapshot.
        snapshot: Hash,
        /// The number of the chunk.
        number: u64,
    },
    /// A chunk of the content of a snapshot.
    Chunk {
        /// The id of the snapshot.
        snapshot: Hash,
        /// The number of the chunk.
        number: u64,
        /// The chunk, or `None` if the sender does not have it.
        bytes: Option<bytes::Bytes>,
    },
    /// Asks whether the term is still current. The number is the round.
    ConfirmTerm(Term, u64),
    /// Confirms that the term is still current, for this round.
    TermConfirmed(Term, u64),
}

/// The outcome of a transaction.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Outcome<A> {
    /// The transaction is committed.
    Committed {
        /// The index of its entry.
        index: Slot,
        /// The answer of the goal.
        result: A,
    },
    /// The goal failed. The history contains it as a failure, and it changed nothing.
    Failed {
        /// The index of its entry.
        index: Slot,
        /// The reason of the failure.
        why: GoalError,
    },
    /// The node found no leader and handed the submission to no node: this submission will not take effect. Submit it
    /// again. If an earlier submission under the same id ended as `Unknown`, its outcome stays unknown.
    NoQuorum,
    /// The transaction may have been committed, or may still be. Submit it again under the same id: it commits at most
    /// once.
    Unknown {
        /// The index up to which the transaction is known not to be in the history: not before the birth. The next
        /// submission may use it as its birth.
        absent_through: Slot,
    },
    /// Other transactions have filled the dedup window before the leader received this one: it has not happened and will
    /// not happen, neither by this submission nor by an earlier one with the same or an earlier birth. Submit it again with
    /// a later birth.
    Overtaken {
        /// The index up to which the transaction is known not to be in the history: the earliest birth that the next
        /// submission needs.
        absent_through: Slot,
    },
    /// The ledger no longer remembers all transactions since the birth of this submission. Neither this submission nor an
    /// earlier one with the same or an earlier birth takes effect from now on. One of them may have been committed before:
    /// the history between the birth and this index shows it.
    Expired {
        /// The last index that may contain the transaction.
        through: Slot,
    },
    /// Too many transactions are pending at this node: it has not happened and will not happen. Submit it later.
    TooMany,
}

/// The outputs of a node, which the runtime performs when the driver has released them.
#[allow(
    clippy::large_enum_variant,
    reason = "the most frequent variant is the largest: boxing it would cost an allocation for each message"
)]
#[derive(Clone, PartialEq, Debug)]
pub enum Output<G, D, A> {
    /// Send a message to another node.
    Send(NodeId, Message<G, D, A>),
    /// A submission at this node has ended.
    Ended(SubmissionId, Outcome<A>),
    /// A transaction goes to another leader than before. The runtime should log this.
    Rerouted {
        /// The transaction id.
        tx_id: TxId,
        /// The previous leader.
        from: NodeId,
        /// The current leader.
        to: NodeId,
    },
    /// A read has an answer.
    Answered {
        /// The id of the read.
        read: ReadId,
        /// The index of the last entry that the answer includes.
        index: Slot,
        /// The result of the goal.
        result: Result<A, GoalError>,
    },
    /// This node cannot answer the read. The caller should ask the named leader, if there is one.
    NotAnswered(ReadId, Option<NodeId>),
    /// This node no longer leads and has told the named node to start an election. The voters decide whether it wins.
    LeadershipTransferred(NodeId),
    /// The leadership transfer failed. Nothing has changed.
    TransferFailed(log::Rejection),
    /// Write the content of a snapshot, which [`Ledger::unsaved_snapshot`](super::Ledger::unsaved_snapshot) returns, to
    /// disk in chunks, and pass [`Input::SnapshotSaved`].
    SaveSnapshot(Hash),
    /// Send a chunk of a snapshot from disk, as [`Message::Chunk`], or the answer that it is not there.
    ReadChunk {
        /// The requesting node.
        to: NodeId,
        /// The id of the snapshot.
        snapshot: Hash,
        /// The number of the chunk.
        number: u64,
    },
    /// Store the description of a snapshot whose content this node receives, in place of the previous one. The chunks of
    /// the previous one are no longer needed.
    ExpectSnapshot(Option<Box<SnapshotDescription>>),
    /// Write a chunk to disk, and pass [`Input::ChunkStored`].
    StoreChunk {
        /// The id of the snapshot.
        snapshot: Hash,
        /// The number of the chunk.
        number: u64,
        /// The chunk.
        bytes: bytes::Bytes,
    },
    /// Load the content of a snapshot with this number of chunks from disk, and pass [`Input::SnapshotLoaded`].
    LoadSnapshot(Hash, u64),
    /// The log on this node's disk begins after this index: the answer to [`Input::Compact`].
    Compacted(Slot),
    /// The configuration decides from the index after this one on.
    Changed(Configuration, Slot),
    /// The configuration does not become active, or the outcome is unknown.
    ChangeFailed(Configuration, ChangeError),
    /// A decided entry does not fit this node's state: the node has stopped. The operator should check its disk; a new
    /// node can replace it.
    Diverged(Divergence),
}

/// Combines consecutive entries of the log for the same node, up to `batch` in one message.
///
/// The order of the messages to a node does not change.
pub fn coalesce_appends<G, D, A>(outputs: &mut Vec<Output<G, D, A>>, batch: usize) {
    let to = |output: &Output<G, D, A>| match output {
        Output::Send(to, _) => Some(*to),
        _ => None,
    };
    log::coalesce_appends(outputs, batch, to, |output| match output {
        Output::Send(_, Message::Log(log::Message::Append(append))) => Some(append),
        _ => None,
    });
}

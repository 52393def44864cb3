//! The properties of the ledger. Each module holds the observations that its property needs, and checks every new one.

mod agreement;
mod at_most_once;
mod durability;
mod history;
mod outcomes;
mod reads;
mod recovery;
mod terms;
mod write_ahead;

use holdoff_paxos::log::Term;
use holdoff_paxos::{Configuration, NodeId, Slot};

pub(super) use agreement::Agreement;
pub(super) use at_most_once::AtMostOnce;
pub(super) use durability::{Commit, Durability};
pub(super) use history::History;
pub(super) use outcomes::Outcomes;
pub(super) use reads::Reads;
pub(super) use recovery::Recovery;
pub(super) use terms::Terms;
pub(super) use write_ahead::WriteAhead;

use crate::machine::{DiffMismatch, KeyValue, Values};
use crate::{Consistency, Divergence, LogEntry, Outcome, OutputOf, SubmissionId, TxId};

/// The result of a check.
type Checked = Result<(), Violation>;

/// A violation. Its message begins with the name of the violated property.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub(crate) enum Violation {
    #[error("election safety: {first:?} and {second:?} lead in {term:?}")]
    ElectionSafety { term: Term, first: NodeId, second: NodeId },
    #[error("log matching: two entries at {slot} in {term:?}")]
    LogMatching { slot: Slot, term: Term },
    #[error("write-ahead: {0:?} does not wait for the disk")]
    WriteAhead(Box<OutputOf<KeyValue>>),
    #[error("durability: the entry at {slot} is not on the disks of a majority: {commit:?}")]
    Durability { slot: Slot, commit: Commit },
    #[error("hash chain: the entry at {slot} is for {index}, or continues another history")]
    HashChain { slot: Slot, index: Slot },
    #[error("atomicity: the goal at {0} failed, and changes something")]
    Atomicity(Slot),
    #[error("replay: the diff at {slot} does not fit: {mismatch}")]
    Replay { slot: Slot, mismatch: DiffMismatch },
    #[error("agreement: {node:?} is at {index} without the entries before")]
    Gap { node: NodeId, index: Slot },
    #[error("agreement: {node:?} has another history at {index}")]
    OtherHistory { node: NodeId, index: Slot },
    #[error("agreement: {node:?} has another state at {index}")]
    OtherState { node: NodeId, index: Slot },
    #[error("agreement: {node:?} has stopped: {divergence}")]
    Diverged { node: NodeId, divergence: Divergence },
    #[error("at most once: {tx_id:?} is committed at {first} and at {second}")]
    CommittedTwice { tx_id: TxId, first: Slot, second: Slot },
    #[error("at most once: {submission:?} has ended twice: {outcome:?}")]
    EndedTwice { submission: SubmissionId, outcome: Box<Outcome<Values>> },
    #[error("truthful outcomes: {tx_id:?} is acknowledged at {index}, which has {found:?}")]
    FalseAcknowledgement { tx_id: TxId, index: Slot, found: Option<Box<LogEntry<KeyValue>>> },
    #[error(
        "truthful outcomes: {tx_id:?} is at {index}, and was reported as absent through {absent_through}"
    )]
    FalseAbsence { tx_id: TxId, index: Slot, absent_through: Slot },
    #[error(
        "truthful outcomes: {tx_id:?}, born at {birth}, is at {index}, and {node:?} has reported {outcome:?}"
    )]
    FalseDenial { tx_id: TxId, birth: Slot, index: Slot, node: NodeId, outcome: Box<Outcome<Values>> },
    #[error("truthful outcomes: {tx_id:?} is committed at {index}, and had expired at {through}")]
    CommittedAfterExpiry { tx_id: TxId, index: Slot, through: Slot },
    #[error("truthful outcomes: the change to {to:?} is acknowledged at {slot}, which has another entry")]
    FalseChange { to: Configuration, slot: Slot },
    #[error("fresh reads: a {consistency:?} read includes {index}, but {before} was acknowledged before it")]
    StaleRead { consistency: Consistency, index: Slot, before: Slot },
    #[error("recovery: no leader after healing:\n{0}")]
    NoLeader(String),
    #[error("recovery: the leader is at {index} of {head}, healed at {healed_at}")]
    TooFewCommits { index: Slot, head: Slot, healed_at: Slot },
    #[error("recovery: {node:?} is not where its leader {leader:?} is:\n{states}")]
    NodeBehind { node: NodeId, leader: NodeId, states: String },
}

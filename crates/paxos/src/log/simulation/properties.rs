//! The properties of the log. Each module holds the observations that its property needs, and checks every new one.

mod agreement;
mod at_most_once;
mod durability;
mod leadership;
mod recovery;
mod write_ahead;

pub(super) use agreement::Agreement;
pub(super) use at_most_once::AtMostOnce;
pub(super) use durability::Durability;
pub(super) use leadership::Leadership;
pub(super) use recovery::Recovery;
pub(super) use write_ahead::WriteAhead;

use super::machine::State;
use crate::log::{Append, Entry, Output, Record, Term};
use crate::{NodeId, Slot};

/// The result of a check.
type Checked = Result<(), Violation>;

/// A violation. Its message begins with the name of the violated property.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Violation {
    #[error("election safety: {0:?} has two leaders, or one twice")]
    ElectionSafety(Term),
    #[error("leader completeness: the leader of {term:?} lacks the decided entry of slot {slot}")]
    LeaderCompleteness { term: Term, slot: Slot },
    #[error("write-ahead: {0:?} does not wait for the disk")]
    SentBeforeStored(Box<Output<u64, State>>),
    #[error("write-ahead: {append:?} overtakes {record:?}")]
    Overtaken { append: Box<Append<u64>>, record: Box<Record<u64, State>> },
    #[error("write-ahead: {node:?} stores {record:?} out of order")]
    StoredOutOfOrder { node: NodeId, record: Box<Record<u64, State>> },
    #[error("durability: slot {0} is decided and not on the disks of a majority")]
    Durability(Slot),
    #[error("agreement: slot {slot} is {:?} at {:?} and {:?} at {:?}", .first.1, .first.0, .second.1, .second.0)]
    Agreement { slot: Slot, first: Box<(NodeId, Entry<u64>)>, second: Box<(NodeId, Entry<u64>)> },
    #[error("agreement: two states after slot {0}")]
    TwoStates(Slot),
    #[error("at most once: value {value} is decided in the slots {first} and {second}")]
    AtMostOnce { value: u64, first: Slot, second: Slot },
    #[error("recovery: no node leads after healing")]
    NoLeader,
    #[error("recovery: {voter:?} is at {:?}, its leader {leader:?} at {:?}", .applied[0], .applied[1])]
    VoterBehind { voter: NodeId, leader: NodeId, applied: [(Slot, State); 2] },
    #[error("recovery: {values} values are decided, the leader is at {applied} of {last}")]
    TooFewDecisions { values: usize, applied: Slot, last: Slot },
    #[error("recovery: the first decision after healing came after {0:?} µs")]
    LateDecision(Option<u64>),
}

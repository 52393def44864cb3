//! The properties of a council. Each module holds the observations that its property needs, and checks every new one.

mod agreement;
mod at_most_once;
mod durability;
mod outcomes;
mod recovery;

use holdoff_sim::kernel::NodeId;

pub(super) use agreement::Agreement;
pub(super) use at_most_once::AtMostOnce;
pub(super) use durability::check_mail;
pub(super) use outcomes::Outcomes;
pub(super) use recovery::check_recovery;

use crate::{OperationId, Outcome, Slot};

/// The result of a check.
pub(super) type Checked = Result<(), Violation>;

/// A violation. Its message begins with the name of the violated property.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Violation {
    #[error("agreement: node {node} has other operations or another chain at slot {slot}")]
    Diverged { node: NodeId, slot: Slot },
    #[error("at most once: {id} is applied in the slots {first} and {second}")]
    AppliedTwice { id: OperationId, first: Slot, second: Slot },
    #[error("at most once: a process has reported the final outcome of {0} twice")]
    EndedTwice(OperationId),
    #[error("truthful outcomes: {id} is reported as {reported:?}, and applied in {applied:?}")]
    WrongOutcome { id: OperationId, reported: Outcome, applied: Option<Slot> },
    #[error("durability: {0} is applied, and no acceptor has its mail")]
    MailLost(OperationId),
    #[error("recovery: node {0} is down")]
    Down(NodeId),
    #[error("recovery: {id} has not ended at node {node}")]
    NeverEnded { node: NodeId, id: OperationId },
    #[error("recovery: node {0} has unposted mail")]
    UnpostedMail(NodeId),
    #[error("recovery: node {node} has applied {applied} of {latest} slots")]
    NotLearned { node: NodeId, applied: Slot, latest: Slot },
    #[error("recovery: acceptor {0} lacks the snapshot")]
    SnapshotMissing(NodeId),
}

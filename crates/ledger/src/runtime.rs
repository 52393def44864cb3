//! The runtime of a node: a store for each ledger, links to the other nodes, and one task that owns the core.
//!
//! ```text
//! host.rs          all ledgers of one process         node.rs      the handle of one ledger, for callers
//! service.rs       requests and packets of peers      settings.rs  timeouts, limits and addresses
//! task.rs          the task that owns the core's      store.rs     the tables on disk
//!                  driver, and performs its outputs   roster.rs    the members: a table in the ledger's history
//! peers.rs         links to peers and their queues    wire.rs      packets, requests and replies
//! address_book.rs  keys and addresses of members      identity.rs  ids of ledgers, and signatures of nodes
//! joining.rs       how a new node finds its ledger    status.rs    the status of a node, for operators
//! snapshots.rs     chunks of whole states on disk   recovery.rs  a new configuration after the loss of a majority
//! ```
//!
//! # Invariants
//!
//! - No message and no answer leaves before the records that it depends on are on disk: the driver releases it then.
//! - A node whose write has failed stops, and reports nothing that it could not store.
//! - The sender of a message is the key that its link has proved, together with the incarnation of that key's storage.

mod address_book;
mod clock;
mod error;
mod host;
mod identity;
mod joining;
mod node;
mod peers;
mod recovery;
mod roster;
mod service;
mod settings;
mod snapshots;
mod status;
mod store;
mod task;
#[cfg(test)]
mod tests;
mod wire;

pub use error::{Error, TransferRejection};
pub use holdoff_net::PeerAddress;
pub use host::{Host, create, join};
pub use identity::{BadLedgerId, LedgerId};
pub use node::{HistoryEntry, HistorySubscription, Node};
pub use recovery::{LogPosition, Recovery, RecoveryRejection, log_position, recover};
pub use roster::{
    LedgerMember, MAX_COMMENT_BYTES, MAX_MEMBERS, MAX_NAME_BYTES, MembershipChange, Roster, RosterRules,
};
pub use settings::{FileSettings, Settings};
pub use status::{LedgerStatus, MemberStatus, NodeCounters, NodeStatus, Role};
pub use store::LedgerInfo;
pub use wire::AppliedHead;

use crate::entry::AppData;
use crate::machine::{Facts, KeyValue, Pair, StateMachine};

/// Facts and values in one ledger.
pub type DefaultMachine = Pair<Facts, KeyValue>;

/// The replicated state of a node: the roster of members, and the machine that callers use.
pub type NodeState<M> = Pair<Roster, M>;

/// The goals of a ledger with this machine.
pub type GoalOf<M> = <NodeState<M> as StateMachine>::Goal;
/// The answers of a ledger with this machine.
pub type AnswerOf<M> = <NodeState<M> as StateMachine>::Answer;

/// A machine that a node can run.
pub trait NodeMachine:
    StateMachine<Goal: AppData + Send, Diff: AppData + Default + Send, Answer: AppData + Send, Overlay: Send>
    + Send
    + 'static
{
}

impl<M> NodeMachine for M where
    M: StateMachine<
            Goal: AppData + Send,
            Diff: AppData + Default + Send,
            Answer: AppData + Send,
            Overlay: Send,
        > + Send
        + 'static
{
}

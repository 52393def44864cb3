//! **One leader, one history.** Transactions on the Paxos log: the leader executes a goal, a majority of the voters
//! stores the resulting entry, and every node applies the decided entries in the same order.
//!
//! - [`machine`]: the state machines that goals change.
//! - [`Transaction`]: a goal, its diff and its result; each hash covers the previous one.
//! - [`State`]: a machine after the applied entries; it accepts only the next entry.
//! - [`Ledger`]: the core of a node: [`step`](Ledger::step) takes an input and returns the records to store and the
//!   outputs to perform afterwards.
//!
//! - [`runtime`]: nodes with disks, links, gossip and members.
//!
//! All modules except the runtime are pure: they use no clock, no random number generator and no I/O. `docs/ledger.md`
//! states the guarantees and the reasons.

mod certificate;
mod dedup;
mod entry;
mod ledger;
pub mod machine;
pub mod metrics;
pub mod runtime;
#[cfg(test)]
mod simulation;
mod state;

pub use holdoff_paxos::log::{EntryPayload, Term};
pub use holdoff_paxos::{NodeId, Slot};

pub use certificate::{Certificate, Head, HeadSignature, Notary, SignatureShare};
pub use dedup::DedupLimits;
pub use entry::{AppData, Hash, LogEntry, ReplicatedMachine, Transaction, TransactionOf, TxId, TxKey};
pub use ledger::{
    ChangeError, Consistency, IncompleteSnapshot, Input, Ledger, LedgerCounters, LedgerStep, MAX_VOTERS,
    Message, MessageOf, Options, Outcome, Output, OutputOf, ReadId, Record, Recovered, Refounding, Store,
    SubmissionId, Verification, coalesce_appends,
};
pub use state::{Checkpoint, Divergence, SnapshotContent, SnapshotDescription, State, snapshot_id};

//! **One leader, one history.** Transactions on the Paxos log: the leader executes a goal, a majority of the voters
//! stores the resulting entry, and every node applies the decided entries in the same order.
//!
//! - [`machine`]: the state machines that goals change.
//! - [`Entry`]: a goal, its diff and its result; each hash covers the previous one.
//! - [`State`]: a machine after the applied entries; it accepts only the next entry.
//! - [`Ledger`]: the core of a node: [`step`](Ledger::step) takes an input and returns the records to store and the
//!   outputs to perform afterwards.
//!
//! - [`runtime`]: nodes with disks, links, gossip and members.
//!
//! All modules except the runtime are pure: they use no clock, no random number generator and no I/O. `docs/ledger.md`
//! states the guarantees and the reasons.

mod certificate;
mod entry;
#[cfg(any(test, feature = "flaws"))]
pub mod flaw;
mod ledger;
pub mod machine;
pub mod metrics;
pub mod runtime;
#[cfg(test)]
mod simulation;
mod state;

pub use holdoff_paxos::log::{Payload, Term};
pub use holdoff_paxos::{NodeId, Slot};

pub use certificate::{Certificate, Head, Notary, Seal, Signature};
pub use entry::{Entry, Hash, Logged, Part, Replicated, TxId, Value};
pub use ledger::{
    Counts, How, Input, Ledger, Letter, LetterOf, MAX_VOTERS, NotChanged, Options, Outcome, Output, OutputOf,
    ReadId, Record, Step, Store, Verified, join,
};
pub use state::{Checkpoint, REMEMBERED, State, Tear};

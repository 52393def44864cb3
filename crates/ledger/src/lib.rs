//! **One leader, one history.** Transactions on the Paxos log: whoever leads runs a goal, a majority keeps what came of
//! it, and everybody applies that, in one order.
//!
//! - [`machine`]: the states that goals change.
//! - [`Entry`]: a goal and what came of it; each hash covers the one before.
//! - [`State`]: what the entries have made of a machine; takes the next entry and no other.
//! - [`Ledger`]: the core of a node: [`step`](Ledger::step) takes what happens and gives what is to be stored, then done.
//!
//! - [`runtime`]: nodes as they run: disks, links, gossip, members.
//!
//! All but the runtime is pure: no clock, no chance, no I/O. `docs/ledger.md` says what holds and why.

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

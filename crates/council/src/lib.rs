//! **Many writers, no leader.** Devices decide operations in Paxos slots. A device builds an operation for the next
//! slot and proposes it; if another value wins the slot, the device rebuilds the operation and proposes it again
//! until it is decided.

pub mod acceptor;
mod clock;
mod device;
#[cfg(any(test, feature = "flaws"))]
pub mod flaw;
mod id;
mod key;
pub mod machine;
pub mod metrics;
mod notary;
mod operation;
pub mod runtime;
mod seat;
#[cfg(test)]
mod simulation;
mod state;
mod value;
mod wire;

pub use device::{
    Counts, Device, Input, Letter, NotCommitted, Options, Outcome, Output, Record, Reserve, Roll, Step,
};
pub use holdoff_net::{Ed25519, PublicKey, Signature, Signer, Verifier};
pub(crate) use holdoff_paxos::planted;
pub use holdoff_paxos::{NodeId, Slot};
pub use id::{BadId, CouncilId, Digest, Mark, OperationId, node_id};
pub use operation::Operation;
pub use seat::{Answer, Asker, Quota, Seat, Stored, To};
pub use state::{Applied, Decided, Ended};
pub use value::{Batch, Value};
pub use wire::{Ask, Refusal, Snapshot, Tell};

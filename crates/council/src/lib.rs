//! **Many writers, no leader.** Operations go through Paxos slots: build, propose, lose, build again, win.

pub mod acceptor;
mod clock;
mod id;
mod key;
pub mod machine;
pub mod metrics;
mod operation;
mod seat;
mod state;
mod value;
mod wire;

pub use holdoff_net::{PublicKey, Signature};
pub use holdoff_paxos::{NodeId, Slot};
pub use id::{BadId, CouncilId, Digest, OperationId, node_id};
pub use key::{Ed25519, Signer, Verifier};
pub use operation::Operation;
pub use seat::{Answer, Asker, Quota, Seat, Stored, To};
pub use state::{Applied, Decided, Ended};
pub use value::{Batch, Value};
pub use wire::{Ask, Refusal, Snapshot, Tell};

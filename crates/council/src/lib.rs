//! **Many writers, no leader.** Devices decide operations in Paxos slots. A device builds an operation for the next
//! slot and proposes it; if another value wins the slot, the device rebuilds the operation and proposes it again
//! until it is decided.

pub mod acceptor;
mod access;
mod clock;
mod council_acceptor;
mod device;
mod id;
pub mod machine;
pub mod metrics;
pub mod runtime;
#[cfg(test)]
mod simulation;
mod state;
mod value;
mod wire;

pub use access::{Access, AccessChange, Closing, Endorsement, Founding, RecoveredFrom, SignedAccess};
pub use council_acceptor::{AcceptorRecord, AddressedReply, CouncilAcceptor, Quota, Recipient, Requester};
pub use device::{
    AttemptReserve, Device, DeviceCounters, DeviceStep, Input, Mail, NotCommitted, Options, Outcome, Output,
    Record, StoredMark,
};
pub use holdoff_net::{Ed25519, PublicKey, Signature, Signer, Verifier};
pub use holdoff_paxos::{NodeId, Slot};
pub use id::{BadId, CouncilId, Digest, OperationId, ShortId};
pub use state::{Applied, CouncilState, OperationEnd};
pub use value::{Batch, SignedOperation, SlotValue};
pub use wire::{AcceptorReply, AcceptorReport, AcceptorRequest, CouncilSnapshot, RequestRefusal};

//! Gossip about the node that *should* lead: a hint that no minority of lying voters can forge.
//!
//! The crate is a pure state machine. It reads no clock, draws no random numbers and performs no I/O. A [`Watch`] maintains
//! the [`Hint`], merged by maximum: a majority of voters proves an epoch, and the leader proves its heartbeat. A [`Node`]
//! has a watch and the list of all other nodes, and draws the receivers of each message from that list.
//!
//! The caller passes in every event, with a time that never goes back and a random number, and sends the resulting
//! messages. The node reports which node *should* lead. A quorum decides in the log of `holdoff-paxos` which node does
//! lead.

mod hint;
mod message;
mod node;
mod settings;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
mod vote;
mod watch;

pub use hint::{Group, Heartbeat, Hint, LeaderClaim};
pub use holdoff_net::{Ed25519, PublicKey, Signature, Signer, Verifier};
pub use message::{BadMessage, MAX_MESSAGE_BYTES, Message};
pub use node::{GossipCounters, Node, Transmit};
pub use settings::{Settings, SettingsFinding};
pub use vote::{BadElectorate, Electorate, EpochCertificate, EpochVote, MAX_VOTERS, NextEpoch, ProvenClaim};
pub use watch::{LogRole, Outgoing, TransferError, Watch};

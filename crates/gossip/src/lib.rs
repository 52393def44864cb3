//! Gossip about the node that *should* lead: a hint that no minority of lying voters can forge.
//!
//! The crate is two pure state machines. It reads no clock, draws no random numbers and performs no I/O.
//!
//! - [`Watch`]: the [`Hint`], merged by maximum. A majority of voters proves an epoch; the leader proves its heartbeat.
//! - [`Sampling`]: the peers to send to: a full mesh up to ten nodes, a small random view above.
//!
//! A [`Node`] combines both. The caller passes in every event, with a time that never goes back and a random number,
//! and sends the resulting messages. The node reports which node *should* lead. A quorum decides in the log of
//! `holdoff-paxos` which node does lead.

/// Returns whether a known defect is injected. Outside of the tests that inject defects the answer is always `false`.
macro_rules! planted {
    ($flaw:ident) => {{
        #[cfg(test)]
        let is_planted = crate::flaw::Flaw::$flaw.is_planted();
        #[cfg(not(test))]
        let is_planted = false;
        is_planted
    }};
}

mod counts;
mod electorate;
#[cfg(test)]
mod flaw;
mod hint;
mod key;
mod message;
mod node;
mod sampling;
mod settings;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
mod vote;
mod watch;

pub use counts::Counts;
pub use electorate::{BadElectorate, Electorate, MAX_VOTERS};
pub use hint::{Beat, Claim, Hint};
pub use holdoff_net::{Ed25519, PublicKey, Signature, Signer, Verifier};
pub use key::Group;
pub use message::{BadMessage, MAX_MESSAGE_BYTES, Message};
pub use node::{Node, Send};
pub use sampling::{Address, BadAddress, MAX_ARCS, MAX_EXCHANGED, MESH, Peer, Sampling};
pub use settings::{Finding, Settings};
pub use vote::{Certificate, Next, Proven, Vote};
pub use watch::{NotNow, Say, Standing, Watch};

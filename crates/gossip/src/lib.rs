//! **Who should lead, by hearsay that nobody can poison.** Two machines, no clock, no chance, no I/O.
//!
//! - [`Watch`]: the [`Hint`], merged by maximum; an epoch is proven by a majority of voters, a heartbeat by its leader.
//! - [`Sampling`]: whom to tell: everybody up to ten nodes, a small random view above.
//!
//! A [`Node`] is both. Give it what happens, with a time that never goes back and a number drawn at random; send what it
//! wants sent. It says who *should* lead. Who does is decided by a quorum, in the log of `holdoff-paxos`.

/// Whether a known defect is planted: never, outside of the tests that look for it.
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

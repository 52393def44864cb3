//! The messages between devices and acceptors on a link.
//!
//! The link authenticates the key of the peer. Every message carries the incarnation of the sender's store, in both
//! directions. A link reconnects after it was lost, and the peer that answers then may have another store.

use serde::{Deserialize, Serialize};

use crate::{Ask, CouncilId, Tell};

/// The role that devices have on links to acceptors.
pub const ROLE: &str = "council device 1";

/// A message of a device.
#[expect(clippy::large_enum_variant, reason = "all but one in a connection's life are questions")]
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Request {
    /// Asks for the incarnation of the acceptor. The [`Reply`] contains nothing else.
    Who,
    /// A request for a council.
    Ask {
        /// The incarnation of the device's store. The device's id in ballots is derived from it and the key.
        life: u64,
        /// The council.
        council: CouncilId,
        /// The request.
        ask: Ask,
    },
}

/// A response of an acceptor.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reply {
    /// The incarnation of the acceptor's store. The acceptor's id in configurations is derived from it and the key.
    pub life: u64,
    /// The answers: one, except for [`Ask::Decided`], which has none, and [`Ask::Fetch`], which has two if there is
    /// a history to report.
    pub tells: Vec<Tell>,
}

/// A message that an acceptor pushes to a watcher.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Push {
    /// The incarnation of the acceptor's store.
    pub life: u64,
    /// The council.
    pub council: CouncilId,
    /// The message.
    pub tell: Tell,
}

//! What devices and acceptors say to each other over a link.
//!
//! The link proves whose key it is. The life of the storage goes with every message, both ways: a link
//! comes back by itself after it was lost, and whoever is found at its end then may have another disk.

use serde::{Deserialize, Serialize};

use crate::{Ask, CouncilId, Tell};

/// What devices are called on links to acceptors.
pub const ROLE: &str = "council device 1";

/// What a device sends.
#[expect(clippy::large_enum_variant, reason = "all but one in a connection's life are questions")]
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Request {
    /// Which life is this? Answered by a [`Reply`] that tells nothing else.
    Who,
    /// A question about a council.
    Ask {
        /// The life of the device's storage. With its key this is who it is in ballots.
        life: u64,
        /// Which council.
        council: CouncilId,
        /// What.
        ask: Ask,
    },
}

/// What an acceptor answers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reply {
    /// The life of the acceptor's storage. With its key this is who it is in configurations.
    pub life: u64,
    /// The answer: one, but to [`Ask::Decided`] none, and to [`Ask::Fetch`] two if there is a history to tell.
    pub tells: Vec<Tell>,
}

/// What an acceptor says without being asked, to who watches.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Push {
    /// The life of the acceptor's storage.
    pub life: u64,
    /// Which council.
    pub council: CouncilId,
    /// What.
    pub tell: Tell,
}

//! How a device and an acceptor talk: what goes over a link between them.

use serde::{Deserialize, Serialize};

use crate::{Ask, CouncilId, Tell};

/// What a device says it is.
pub const ROLE: &str = "holdoff council 1";

/// A call of a device to an acceptor.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "a request is made, written and forgotten")]
pub enum Request {
    /// The first on every connection: which life of its storage the device has. Its key the connection has proved.
    Greet {
        /// The life of the device's storage.
        life: u64,
    },
    /// A question about a council.
    Ask {
        /// Which council.
        council: CouncilId,
        /// What.
        ask: Ask,
    },
}

/// The acceptor's reply. Each says which life its storage has: whoever lost it is somebody else, from then on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reply {
    /// The life of the acceptor's storage.
    pub life: u64,
    /// What it says: nothing to a greeting, and nothing where nothing is to be said.
    pub tells: Vec<Tell>,
}

/// What an acceptor pushes to whoever watches a council.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct News {
    /// Which council.
    pub council: CouncilId,
    /// What.
    pub tell: Tell,
}

//! What signatures of gossip are for.

use serde::{Deserialize, Serialize};

/// The context of all signatures of gossip: one made for something else is worth nothing here.
pub(crate) const CONTEXT: &[u8] = b"holdoff gossip";

/// Which nodes gossip together. It is signed with everything, so that nothing said in one group counts in another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Group(pub [u8; 16]);

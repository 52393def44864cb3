//! The domain separation of gossip signatures.

use serde::{Deserialize, Serialize};

/// The context of all gossip signatures: a signature made for another purpose is not valid here.
pub(crate) const CONTEXT: &[u8] = b"holdoff gossip";

/// The group of nodes that gossip together. Every signature covers it, so that a statement from a group is not valid in
/// another group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Group(pub [u8; 16]);

//! The state machine that a council replicates.

mod members;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use holdoff_paxos::NodeId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use members::{CouncilChange, Member, Members};

use crate::{PublicKey, Slot};

/// A deterministic state machine: an operation changes the state in the same way on every device.
///
/// A member requests a change ([`Machine::Change`]). The device [builds](Machine::build) it into an operation
/// for the current state. If the value of another device wins the slot, the device
/// [revalidates](Machine::revalidate) the requested change and builds it again. An encrypted group is such a
/// machine, too.
pub trait Machine: Clone {
    /// A requested change. The device keeps it on its disk until its outcome is known.
    type Change: Clone + Serialize + DeserializeOwned;

    /// Builds the operation for a requested change and the current state.
    fn build(&self, change: &Self::Change, position: &Position) -> Result<Bytes, InvalidOperation>;

    /// Checks whether a requested change still applies after other changes were decided first.
    fn revalidate(&self, change: &Self::Change, position: &Position) -> Revalidation;

    /// Returns whether other devices may have the built operation decided. Otherwise only its author can, and must
    /// build it anew for each slot.
    fn is_shareable(&self, change: &Self::Change) -> bool;

    /// Returns the new key of the author if this change replaces its key.
    fn successor(&self, _: &Self::Change) -> Option<PublicKey> {
        None
    }

    /// Applies a decided operation. An invalid operation must change nothing, so that every device skips it in the
    /// same way.
    fn apply(
        &mut self,
        author: &PublicKey,
        body: &[u8],
        position: &Position,
    ) -> Result<Effect, InvalidOperation>;

    /// Returns the members: the keys whose values are valid, and whose devices the acceptors serve.
    fn member_keys(&self) -> BTreeSet<PublicKey>;

    /// Returns whether values of this author are valid.
    fn may_propose(&self, key: &PublicKey) -> bool {
        self.member_keys().contains(key)
    }

    /// Returns the acceptors that decide the next slot.
    fn acceptors(&self) -> &BTreeMap<NodeId, AcceptorInfo>;

    /// Returns the change that compacts the history after this slot, so that a snapshot replaces all slots up to
    /// it. Returns `None` if devices do not compact this machine by themselves.
    fn compaction(&self, since: Slot) -> Option<Self::Change> {
        let _ = since;
        None
    }

    /// Serializes the whole state. Equal states have equal bytes. Acceptors reject more than
    /// [`MACHINE_BYTES`](crate::CouncilSnapshot::MACHINE_BYTES).
    fn snapshot(&self) -> Vec<u8>;

    /// Restores the state from these bytes.
    fn restore(bytes: &[u8]) -> Option<Self>;
}

/// An acceptor: its key, the incarnation of its store, and its address.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct AcceptorInfo {
    /// The key.
    pub key: PublicKey,
    /// The incarnation of its store.
    pub incarnation: u64,
    /// The address on which it listens, as host and port.
    pub address: String,
}

impl AcceptorInfo {
    /// Returns the acceptor's node id.
    pub fn id(&self) -> NodeId {
        NodeId::derive(self.key.as_bytes(), self.incarnation)
    }
}

/// The effect of an operation beside its change of the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// No effect.
    Nothing,
    /// From now on a snapshot of the state after this slot replaces all slots up to it.
    Compact,
}

/// The position of an operation in the history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// The slot of the operation.
    pub slot: Slot,
    /// The birth slot: the last slot that the author had applied when it submitted the operation.
    pub birth_slot: Slot,
    /// The slot of the last compaction, after which every device took a snapshot.
    pub compacted: Slot,
}

/// The result of a revalidation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Revalidation {
    /// The change still applies.
    Valid,
    /// The requested state already holds.
    Satisfied,
    /// The change has become impossible.
    Invalid(InvalidOperation),
}

/// The reason for which an operation is impossible, in words for its author.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[error("{0}")]
pub struct InvalidOperation(pub String);

impl InvalidOperation {
    /// Creates an error with this reason.
    pub fn because(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

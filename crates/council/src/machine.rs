//! What a council decides about.

mod members;

use std::collections::BTreeMap;

use bytes::Bytes;
use holdoff_paxos::NodeId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use members::{Change, Member, Members};

use crate::{PublicKey, Slot};

/// A state that operations change, the same way everywhere.
///
/// What a member wants is a [wish](Machine::Wish). It is [built](Machine::build) into an operation for
/// the state of the moment; when somebody else was first it is asked whether it
/// [still stands](Machine::revalidate), and built again. An encrypted group is such a machine too.
pub trait Machine: Clone {
    /// What a member wants; kept on its disk until it is known what became of it.
    type Wish: Clone + Serialize + DeserializeOwned;

    /// What to decide for this wish, now.
    fn build(&self, wish: &Self::Wish, around: &Around) -> Result<Bytes, Invalid>;

    /// Whether a wish still makes sense after others were first.
    fn revalidate(&self, wish: &Self::Wish, around: &Around) -> Standing;

    /// Whether others may have it decided as it was built; else only its author can, by building it anew.
    fn is_shareable(&self, wish: &Self::Wish) -> bool;

    /// The key that a wish's author goes by once it has come true, if that is what it wants.
    fn successor(&self, _: &Self::Wish) -> Option<PublicKey> {
        None
    }

    /// Carries out what was decided. Where it is invalid it must change nothing: everybody skips it alike.
    fn apply(&mut self, author: &PublicKey, body: &[u8], around: &Around) -> Result<Effect, Invalid>;

    /// Whether this one's values count.
    fn may_propose(&self, key: &PublicKey) -> bool;

    /// Who decides the next slot.
    fn acceptors(&self) -> &BTreeMap<NodeId, Acceptor>;

    /// What to wish for after this slot, so that a snapshot stands for everything up to it; `None` if this machine is
    /// not compacted by itself.
    fn compaction(&self, since: Slot) -> Option<Self::Wish> {
        let _ = since;
        None
    }

    /// The whole state, the same bytes for the same state: at most
    /// [`MACHINE_BYTES`](crate::Snapshot::MACHINE_BYTES), or acceptors do not take it.
    fn snapshot(&self) -> Vec<u8>;

    /// The state of these bytes.
    fn restore(bytes: &[u8]) -> Option<Self>;
}

/// Who decides: an acceptor's key, the life of its storage, and where it is reached.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Acceptor {
    /// Who it is.
    pub key: PublicKey,
    /// The life of its storage.
    pub life: u64,
    /// Where it listens, as host and port.
    pub address: String,
}

impl Acceptor {
    /// Its id.
    pub fn id(&self) -> NodeId {
        crate::node_id(&self.key, self.life)
    }
}

/// What an operation does beside changing the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Nothing.
    Nothing,
    /// From now on a snapshot of the state after this slot stands for everything up to it.
    Compact,
}

/// Where in the history an operation stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Around {
    /// The slot it is for.
    pub slot: Slot,
    /// The last slot its author had applied when it was submitted.
    pub born: Slot,
    /// The last slot after which everybody took a snapshot.
    pub compacted: Slot,
}

/// Whether a wish still makes sense.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It does.
    Wanted,
    /// What it wants is so already.
    Satisfied,
    /// It cannot come true any more.
    Invalid(Invalid),
}

/// Why an operation cannot be, in words for who wanted it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(pub String);

impl Invalid {
    /// In these words.
    pub fn because(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

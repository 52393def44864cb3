//! The errors of the runtime.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdoff_disk::DiskError;
use holdoff_net::PublicKey;
use holdoff_policy::{Class, ClassMap, Classify, Failure};

use crate::state::Divergence;

/// An error of a node: what failed, what is true now, and the next action.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another process has the ledger open. Nothing has changed.
    #[error("another process has the ledger in {} open: stop it, or wait until it has ended", .0.display())]
    InUse(PathBuf),
    /// The ledger does not exist here. Nothing has changed.
    #[error(
        "there is no ledger `{0}` here: create it (`holdoff ledger init`) or join it (`holdoff ledger join`)"
    )]
    UnknownLedger(String),
    /// The ledger already exists here. Nothing has changed.
    #[error("the ledger `{0}` already exists here: use it, or choose another namespace or directory")]
    AlreadyExists(String),
    /// The namespace is not valid. Nothing has changed.
    #[error("invalid ledger name {0:?}: use 1 to 64 letters, digits, `-` and `_`")]
    BadNamespace(String),
    /// Another release wrote the store. Nothing has changed.
    #[error(
        "the ledger's store has format {found}, and this release reads {known}: use the release that wrote it, or let the \
         node join again with an empty directory"
    )]
    Format {
        /// The format of the store.
        found: u64,
        /// The format that this release reads.
        known: u64,
    },
    /// The disk has failed. The node has stopped, and has reported nothing that it could not store.
    #[error(
        "the ledger's disk has failed: {0}. Start the node again: it continues from the stored records. If the disk is \
         lost or damaged, join again from an empty directory with the same key"
    )]
    Disk(#[from] DiskError),
    /// A decided entry does not fit the state of this node. The node has stopped.
    #[error(
        "the node has stopped, because a decided entry does not fit its state: {0}. Join again from an empty directory"
    )]
    Diverged(#[from] Divergence),
    /// A key file could not be read or written.
    #[error(transparent)]
    Key(Arc<holdoff_net::KeyFileError>),
    /// A link or the server has failed.
    #[error(transparent)]
    Net(Arc<holdoff_net::Error>),
    /// The address under which peers reach the node is not valid. Nothing has changed.
    #[error("invalid advertised address {0:?}: use at most 64 bytes without whitespace")]
    BadAddress(String),
    /// There is no leader, or the leader could not be reached. Nothing has changed.
    #[error(
        "no leader was found within {0:?}: start a majority of the voters, and check that they reach each other"
    )]
    NoLeader(Duration),
    /// The key is not the key of a voter.
    #[error("{0} is not a voter of this ledger: see `holdoff ledger members`")]
    NotAVoter(PublicKey),
    /// The leader has rejected the request. Nothing has changed.
    #[error("{0}")]
    Rejected(String),
    /// The node has stopped.
    #[error("the ledger's node has stopped: {0}")]
    Stopped(String),
    /// The queue of the node is full. Nothing has changed.
    #[error("the ledger's node is overloaded: try again later")]
    Busy,
}

impl From<holdoff_net::Error> for Error {
    fn from(error: holdoff_net::Error) -> Self {
        Self::Net(Arc::new(error))
    }
}

impl From<holdoff_net::KeyFileError> for Error {
    fn from(error: holdoff_net::KeyFileError) -> Self {
        Self::Key(Arc::new(error))
    }
}

/// A submission may be repeated under its transaction's id.
impl Classify for Error {
    fn classify(&self, classes: &ClassMap) -> Failure {
        match self {
            Self::Net(error) => error.classify(classes),
            Self::NoLeader(_) => Failure::new(Class::Timeout),
            Self::Busy => Failure::transient().local(),
            Self::InUse(_) => Failure::new(Class::Contended),
            // Most rejections pass: a change of voters or a transfer in progress, a follower that is behind.
            Self::Rejected(_) => Failure::transient(),
            _ => Failure::permanent(),
        }
    }
}

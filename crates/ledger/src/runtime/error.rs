//! What can go wrong around a node.

use std::path::PathBuf;
use std::time::Duration;

use holdoff_net::PublicKey;

use crate::state::Tear;

/// What went wrong with a node, what is true then, and what to do about it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Somebody else has the ledger open. Nothing has changed.
    #[error("another process has the ledger in {} open: wait until it has ended, or end it", .0.display())]
    InUse(PathBuf),
    /// There is no such ledger here. Nothing has changed.
    #[error(
        "there is no ledger `{0}` here: found it (`holdoff ledger init`) or join it (`holdoff ledger join`)"
    )]
    NoLedger(String),
    /// There is one already. Nothing has changed.
    #[error("there is a ledger `{0}` here already: use it, or another namespace or directory")]
    IsThere(String),
    /// That is no name for a ledger. Nothing has changed.
    #[error("{0:?} is no name for a ledger: 1 to 64 letters, digits, `-` and `_`")]
    BadNamespace(String),
    /// Another release wrote the store. Nothing has changed.
    #[error(
        "the ledger's store has format {found}, and this release reads {known}: use the release that wrote it, or let the \
         node join anew with an empty directory"
    )]
    Format {
        /// The format it has.
        found: u64,
        /// The latest that is known here.
        known: u64,
    },
    /// The disk has failed. The node has stopped, and has told nobody what it could not store.
    #[error(
        "the ledger's disk has failed: {0}. What was stored is taken up when it is started again; if the disk is lost or \
         damaged, join again from an empty directory with the same key"
    )]
    Disk(String),
    /// What is decided does not fit what is here. The node has stopped.
    #[error(
        "this node has stopped, because what is decided does not fit what it has: {0}. Join again from an empty directory"
    )]
    Torn(#[from] Tear),
    /// A file with a key could not be read or written.
    #[error("{0}")]
    Key(String),
    /// A link or the server has failed.
    #[error("{0}")]
    Net(String),
    /// Nobody leads, or the leader could not be reached. Nothing has changed.
    #[error("no leader was found within {0:?}: a majority of voters must be there and reach each other")]
    NoLeader(Duration),
    /// Only members can be asked about, and only voters can lead.
    #[error("{0} is not a member of this ledger that votes: see `holdoff ledger members`")]
    NotAVoter(PublicKey),
    /// The leader did not do it. Nothing has changed.
    #[error("{0}")]
    NotNow(String),
    /// The node has stopped.
    #[error("the ledger's node has stopped: {0}")]
    Stopped(String),
    /// As many things are asked of the node as it takes. Nothing was done.
    #[error("the ledger's node is busy with as much as it takes: try again in a moment")]
    Busy,
}

impl From<holdoff_net::Error> for Error {
    fn from(error: holdoff_net::Error) -> Self {
        Self::Net(error.to_string())
    }
}

impl From<holdoff_net::KeyFileError> for Error {
    fn from(error: holdoff_net::KeyFileError) -> Self {
        Self::Key(error.to_string())
    }
}

//! The table that all nodes replicate: the interface of this engine to a ledger.

use std::fmt::Debug;

use async_trait::async_trait;
use holdoff_ledger::TxId;
use holdoff_ledger::machine::{Change, Commands, Key, Value, Values};

use crate::Error;
use crate::store::Result;

/// The required freshness of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fresh {
    /// The local copy of this node: it includes all earlier responses to this node, but may lack newer writes of
    /// others.
    AtHand,
    /// Not older than the request.
    Newest,
}

/// The outcome of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Said {
    /// It was committed.
    Done,
    /// A value was not as expected. It has changed nothing.
    Differs,
    /// Unknown: it may have been committed, or may be committed later.
    Unknown,
}

/// An event of a table.
#[derive(Clone, Debug)]
pub(crate) enum News {
    /// These rows have changed.
    Changed(Vec<Change<Key, Value>>),
    /// Changes were missed.
    Missed,
}

/// Values by key, the same on every node.
#[async_trait]
pub(crate) trait Table: Send + Sync + Debug {
    /// Executes commands that change nothing. Returns their results, and the last index of the history they include.
    async fn read(&self, commands: Commands, fresh: Fresh) -> Result<(u64, Values)>;

    /// Executes all commands or none. The same id is the same transaction, and is committed at most once. Also after an
    /// error it may have been committed, or may be committed later.
    async fn submit(&self, tx_id: TxId, commands: Commands) -> Result<Said>;

    /// Subscribes to all changes from now on.
    fn follow(&self) -> Result<Box<dyn Following>>;
}

/// A subscription to changes.
#[async_trait]
pub(crate) trait Following: Send {
    /// Waits for the next event; `None` if the table is gone.
    async fn next(&mut self) -> Option<News>;
}

/// Returns the error of an unexpected response, or of a failed request.
pub(crate) fn trouble(transient: bool, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Store { transient, source: source.into() }
}

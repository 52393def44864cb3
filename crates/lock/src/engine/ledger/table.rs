//! The table that all nodes keep alike: all that this engine asks of a ledger.

use std::fmt::Debug;

use async_trait::async_trait;
use holdoff_ledger::TxId;
use holdoff_ledger::machine::{Change, Commands, Key, Value, Values};

use crate::Error;
use crate::store::Result;

/// How fresh an answer must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fresh {
    /// What this node has: all that was answered to it before, and perhaps not what others did since.
    AtHand,
    /// Not older than the question.
    Newest,
}

/// What came of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Said {
    /// It is done.
    Done,
    /// Something is not as it expects: it has changed nothing.
    Differs,
    /// It may happen yet, or have happened.
    Unknown,
}

/// What is heard of a table.
#[derive(Clone, Debug)]
pub(crate) enum News {
    /// These rows have changed.
    Changed(Vec<Change<Key, Value>>),
    /// Something was missed.
    Missed,
}

/// Values by key, the same on every node.
#[async_trait]
pub(crate) trait Table: Send + Sync + Debug {
    /// What commands that change nothing answer, and the last place of the history that the answer knows of.
    async fn read(&self, commands: Commands, fresh: Fresh) -> Result<(u64, Values)>;

    /// Does all of it or nothing. Under the same name it is the same transaction, and happens once at most. After an error,
    /// too, it may happen yet, or have happened.
    async fn submit(&self, tx_id: TxId, commands: Commands) -> Result<Said>;

    /// Hears of all changes from now on.
    fn follow(&self) -> Result<Box<dyn Following>>;
}

/// One that hears of changes.
#[async_trait]
pub(crate) trait Following: Send {
    /// The next that happens; nothing if the table is gone.
    async fn next(&mut self) -> Option<News>;
}

/// What the table said that it should not, or could not do.
pub(crate) fn trouble(transient: bool, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Store { transient, source: source.into() }
}

//! A node that may not have joined its ledger yet, as a table.

use std::fmt;

use async_trait::async_trait;
use holdoff_ledger::TxId;
use holdoff_ledger::machine::{Commands, Values};
use holdoff_ledger::runtime::{Books, Node};

use super::table::{Following, Fresh, Said, Table, trouble};
use crate::store::Result;

/// The function that looks up the node, and returns it as soon as there is one.
pub(crate) struct Sought(Box<dyn Fn() -> Option<Node<Books>> + Send + Sync>);

impl Sought {
    pub(crate) fn by(find: impl Fn() -> Option<Node<Books>> + Send + Sync + 'static) -> Self {
        Self(Box::new(find))
    }

    fn node(&self) -> Result<Node<Books>> {
        (self.0)().ok_or_else(|| trouble(true, "this node has not joined the ledger yet, or has stopped"))
    }
}

#[async_trait]
impl Table for Sought {
    async fn read(&self, commands: Commands, fresh: Fresh) -> Result<(u64, Values)> {
        Table::read(&self.node()?, commands, fresh).await
    }

    async fn submit(&self, tx_id: TxId, commands: Commands) -> Result<Said> {
        Table::submit(&self.node()?, tx_id, commands).await
    }

    fn follow(&self) -> Result<Box<dyn Following>> {
        Table::follow(&self.node()?)
    }
}

impl fmt::Debug for Sought {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sought({:?})", (self.0)())
    }
}

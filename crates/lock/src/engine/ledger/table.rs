//! The table that all nodes of a ledger replicate: the interface of this engine to a ledger, and its implementation by a
//! node.

use std::fmt::{self, Debug};
use std::time::Duration;

use async_trait::async_trait;
use holdoff_ledger::machine::{Commands, Either, GoalError, Key, RowChange, StateMachine, Value, Values};
use holdoff_ledger::runtime::{self, DefaultMachine, HistorySubscription, Node, Role};
use holdoff_ledger::{Consistency, Outcome, Slot, TxKey};

use crate::Error;
use crate::store::Result;

/// The time limit of one request to the ledger. A contender for a lock stops waiting sooner.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

type Goal = <DefaultMachine as StateMachine>::Goal;
type Answer = <DefaultMachine as StateMachine>::Answer;

/// The required freshness of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReadConsistency {
    /// The local copy of this node: it includes all earlier responses to this node, but may lack newer writes of
    /// others.
    Local,
    /// Not older than the request.
    Newest,
}

/// The outcome of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TxOutcome {
    /// It was committed.
    Committed,
    /// A value was not as expected. It has changed nothing.
    Conflict,
    /// It does not take effect from now on. It may have been committed earlier: read the values again.
    Expired,
}

/// An event of a table.
#[derive(Clone, Debug)]
pub(crate) enum TableEvent {
    /// These rows have changed.
    Changed(Vec<RowChange<Key, Value>>),
    /// Changes were missed.
    Missed,
}

/// Values by key, the same on every node.
#[async_trait]
pub(crate) trait Table: Send + Sync + Debug {
    /// Executes commands that change nothing. Returns their results, and the last index of the history they include.
    async fn read(&self, commands: Commands, consistency: ReadConsistency) -> Result<(u64, Values)>;

    /// Executes all commands or none, and waits until the outcome is known. The same key is the same transaction, and is
    /// committed at most once. After an error or a cancellation it may have been committed, or may be committed later:
    /// call this again with the same key to resolve it.
    async fn submit(&self, tx: TxKey, commands: Commands) -> Result<TxOutcome>;

    /// Subscribes to all changes from now on.
    fn subscribe(&self) -> Result<Box<dyn TableSubscription>>;
}

/// A subscription to changes.
#[async_trait]
pub(crate) trait TableSubscription: Send {
    /// Waits for the next event; `None` if the table is gone.
    async fn next(&mut self) -> Option<TableEvent>;
}

/// A node of a ledger, as a table.
#[async_trait]
impl Table for Node<DefaultMachine> {
    async fn read(&self, commands: Commands, consistency: ReadConsistency) -> Result<(u64, Values)> {
        let goal = Either::Second(commands);
        let how = match consistency {
            ReadConsistency::Local => Consistency::Local,
            ReadConsistency::Newest if knows_no_leader(self).await? => {
                return read_in_order(self, goal).await;
            }
            ReadConsistency::Newest => Consistency::Quorum,
        };
        let (index, answer) = self.read(goal, how, REQUEST_TIMEOUT).await.map_err(node_error)?;
        values(index, answer.map_err(|why| Error::store(false, why))?)
    }

    async fn submit(&self, tx: TxKey, commands: Commands) -> Result<TxOutcome> {
        match self
            .submit_until_known(tx, Either::Second(commands), REQUEST_TIMEOUT)
            .await
            .map_err(node_error)?
        {
            Outcome::Committed { .. } => Ok(TxOutcome::Committed),
            Outcome::Failed { why: GoalError::Differs { .. }, .. } => Ok(TxOutcome::Conflict),
            Outcome::Failed { why, .. } => Err(Error::store(false, why)),
            Outcome::Overtaken { .. } | Outcome::Expired { .. } => Ok(TxOutcome::Expired),
            Outcome::NoQuorum => Err(Error::store(true, "the ledger has no majority of its voters")),
            Outcome::TooMany => Err(Error::store(true, "this node has too many transactions in flight")),
            _ => Err(Error::store(true, "the outcome of the transaction is unknown")),
        }
    }

    fn subscribe(&self) -> Result<Box<dyn TableSubscription>> {
        let here = self.watch_status().borrow().head.index;
        Ok(Box::new(self.subscribe(here)))
    }
}

#[async_trait]
impl TableSubscription for HistorySubscription<DefaultMachine> {
    async fn next(&mut self) -> Option<TableEvent> {
        loop {
            match self.next().await.ok()? {
                Err(_) => return Some(TableEvent::Missed),
                Ok(page) => {
                    if let Some(Either::Second(diff)) = page.diff() {
                        return Some(TableEvent::Changed(diff.iter().cloned().collect()));
                    }
                }
            }
        }
    }
}

/// Returns whether the node is a learner that knows no leader. A member that does not vote cannot query the leader, but
/// its transactions reach the leader.
async fn knows_no_leader(node: &Node<DefaultMachine>) -> Result<bool> {
    if node.watch_status().borrow().leader.is_some() {
        return Ok(false);
    }
    Ok(node.status().await.map_err(node_error)?.role == Role::Learner)
}

/// Reads by a transaction, which is ordered after all earlier transactions.
async fn read_in_order(node: &Node<DefaultMachine>, goal: Goal) -> Result<(u64, Values)> {
    match node.submit(node.new_tx().map_err(node_error)?, goal, REQUEST_TIMEOUT).await.map_err(node_error)? {
        Outcome::Committed { index, result } => values(index, result),
        Outcome::Failed { why, .. } => Err(Error::store(false, why)),
        _ => Err(Error::store(true, "the ledger has no majority of its voters")),
    }
}

fn values(index: Slot, answer: Answer) -> Result<(u64, Values)> {
    match answer {
        Either::Second(values) => Ok((index.0, values)),
        Either::First(_) => Err(Error::store(false, "the ledger answered a query for values with facts")),
    }
}

/// Converts an error. A stopped node does not recover by itself; the listed errors may be transient.
fn node_error(error: runtime::Error) -> Error {
    use runtime::Error::{Busy, Net, NoLeader};
    Error::store(matches!(error, Busy | Net(_) | NoLeader(_)), error)
}

/// The function that looks up the node, and returns it as soon as there is one.
pub(crate) struct NodeLookup(Box<dyn Fn() -> Option<Node<DefaultMachine>> + Send + Sync>);

impl NodeLookup {
    pub(crate) fn new(find: impl Fn() -> Option<Node<DefaultMachine>> + Send + Sync + 'static) -> Self {
        Self(Box::new(find))
    }

    fn node(&self) -> Result<Node<DefaultMachine>> {
        (self.0)().ok_or_else(|| Error::store(true, "the node has not joined the ledger yet, or has stopped"))
    }
}

#[async_trait]
impl Table for NodeLookup {
    async fn read(&self, commands: Commands, consistency: ReadConsistency) -> Result<(u64, Values)> {
        Table::read(&self.node()?, commands, consistency).await
    }

    async fn submit(&self, tx: TxKey, commands: Commands) -> Result<TxOutcome> {
        Table::submit(&self.node()?, tx, commands).await
    }

    fn subscribe(&self) -> Result<Box<dyn TableSubscription>> {
        Table::subscribe(&self.node()?)
    }
}

impl fmt::Debug for NodeLookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeLookup({:?})", (self.0)())
    }
}

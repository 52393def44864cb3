//! A node of a ledger, as a table.

use std::time::Duration;

use async_trait::async_trait;
use holdoff_ledger::machine::{Commands, Either, Failed, Machine, Values};
use holdoff_ledger::runtime::{self, Books, Node, Role, Subscription};
use holdoff_ledger::{How, Outcome, Slot, TxId};
use uuid::Uuid;

use super::table::{Following, Fresh, News, Said, Table, trouble};
use crate::Error;
use crate::store::Result;

/// The time limit of one request to the ledger. A contender for a lock stops waiting sooner.
const PATIENCE: Duration = Duration::from_secs(10);

type Goal = <Books as Machine>::Goal;
type Answer = <Books as Machine>::Answer;

#[async_trait]
impl Table for Node<Books> {
    async fn read(&self, commands: Commands, fresh: Fresh) -> Result<(u64, Values)> {
        let goal = Either::Second(commands);
        let how = match fresh {
            Fresh::AtHand => How::Local,
            Fresh::Newest if knows_no_leader(self).await? => return in_order(self, goal).await,
            Fresh::Newest => How::Quorum,
        };
        let (index, answer) = self.read(goal, how, PATIENCE).await.map_err(failed)?;
        values(index, answer.map_err(|why| trouble(false, why))?)
    }

    async fn submit(&self, tx_id: TxId, commands: Commands) -> Result<Said> {
        match self.submit(tx_id, Either::Second(commands), PATIENCE).await.map_err(failed)? {
            Outcome::Committed { .. } => Ok(Said::Done),
            Outcome::Failed { why: Failed::Differs { .. }, .. } => Ok(Said::Differs),
            Outcome::Failed { why, .. } => Err(trouble(false, why)),
            Outcome::NoQuorum => Err(trouble(true, "no majority of the ledger's voters was found")),
            Outcome::TooMany => Err(trouble(true, "too many transactions are under way here")),
            _ => Ok(Said::Unknown),
        }
    }

    fn follow(&self) -> Result<Box<dyn Following>> {
        let here = self.glance().borrow().head.index;
        Ok(Box::new(self.subscribe(here)))
    }
}

#[async_trait]
impl Following for Subscription<Books> {
    async fn next(&mut self) -> Option<News> {
        loop {
            match self.next().await.ok()? {
                Err(_) => return Some(News::Missed),
                Ok(page) => {
                    if let Some(Either::Second(diff)) = page.diff() {
                        return Some(News::Changed(diff.iter().cloned().collect()));
                    }
                }
            }
        }
    }
}

/// Returns whether the node is a learner that knows no leader. A member that does not vote cannot query the leader, but
/// its transactions reach the leader.
async fn knows_no_leader(node: &Node<Books>) -> Result<bool> {
    if node.glance().borrow().leader.is_some() {
        return Ok(false);
    }
    Ok(node.status().await.map_err(failed)?.role == Role::Learns)
}

/// Reads by a transaction, which is ordered after all earlier transactions.
async fn in_order(node: &Node<Books>, goal: Goal) -> Result<(u64, Values)> {
    let tx_id = TxId(Uuid::new_v4().as_u128());
    match node.submit(tx_id, goal, PATIENCE).await.map_err(failed)? {
        Outcome::Committed { index, result } => values(index, result),
        Outcome::Failed { why, .. } => Err(trouble(false, why)),
        _ => Err(trouble(true, "no majority of the ledger's voters was found")),
    }
}

fn values(index: Slot, answer: Answer) -> Result<(u64, Values)> {
    match answer {
        Either::Second(values) => Ok((index.0, values)),
        Either::First(_) => Err(trouble(false, "facts were answered, and values asked for")),
    }
}

/// Converts an error. A stopped node does not recover by itself; the listed errors may be transient.
fn failed(error: runtime::Error) -> Error {
    use runtime::Error::{Busy, Net, NoLeader, NotNow};
    trouble(matches!(error, Busy | Net(_) | NoLeader(_) | NotNow(_)), error)
}

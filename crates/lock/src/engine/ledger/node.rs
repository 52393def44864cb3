//! A node of a ledger, as a table.

use std::time::Duration;

use async_trait::async_trait;
use holdoff_ledger::machine::{Commands, Either, Failed, Values};
use holdoff_ledger::runtime::{self, Books, Node, Subscription};
use holdoff_ledger::{How, Outcome, TxId};

use super::table::{Following, Fresh, News, Said, Table, trouble};
use crate::Error;
use crate::store::Result;

/// How long the ledger is given for one answer. Whoever wants a lock stops waiting sooner.
const PATIENCE: Duration = Duration::from_secs(10);

#[async_trait]
impl Table for Node<Books> {
    async fn read(&self, commands: Commands, fresh: Fresh) -> Result<(u64, Values)> {
        let how = match fresh {
            Fresh::AtHand => How::Local,
            Fresh::Newest => How::Quorum,
        };
        let (index, answer) = self.read(Either::Second(commands), how, PATIENCE).await.map_err(failed)?;
        match answer.map_err(|why| trouble(false, why))? {
            Either::Second(values) => Ok((index.0, values)),
            Either::First(_) => Err(trouble(false, "facts were answered, and values asked for")),
        }
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

/// A node that has stopped does not come back by itself; whatever else is wrong may pass.
fn failed(error: runtime::Error) -> Error {
    use runtime::Error::{Busy, Net, NoLeader, NotNow};
    trouble(matches!(error, Busy | Net(_) | NoLeader(_) | NotNow(_)), error)
}

//! A table in memory with several clients: the behaviour of a ledger, and its faults.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use holdoff_ledger::TxId;
use holdoff_ledger::machine::{Commands, KeyValue, Machine as _, Overlay, Values};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::engine::ledger::Ledger;
use crate::engine::ledger::table::{Following, Fresh, News, Said, Table, trouble};
use crate::store::Result;

/// A table that all clients share. A clone is the same table.
#[derive(Clone, Debug, Default)]
pub(crate) struct World(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    table: KeyValue,
    index: u64,
    done: HashMap<TxId, Said>,
    followers: Vec<UnboundedSender<News>>,
    faults: VecDeque<Fault>,
    late: Vec<(TxId, Commands)>,
    submissions: u64,
    reads: u64,
}

/// The fault that strikes the next transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// It is committed, and its outcome is unknown.
    LoseAnswer,
    /// It is not committed, and its outcome is unknown.
    LoseQuestion,
    /// It is committed, and there is never a response.
    Hang,
    /// There is never a response, and [`World::arrive`] commits it.
    Delay,
    /// There is no leader: it has no effect.
    NoQuorum,
}

impl World {
    /// Returns the store of a separate process on this table.
    pub(crate) fn open(&self) -> Ledger {
        Ledger::over(Box::new(self.door()))
    }

    pub(crate) fn door(&self) -> Door {
        Door { world: self.clone(), old: Arc::default() }
    }

    pub(crate) fn strike(&self, fault: Fault) {
        self.state().faults.push_back(fault);
    }

    pub(crate) fn faults_left(&self) -> usize {
        self.state().faults.len()
    }

    /// Executes the delayed transactions, if their expectations hold.
    pub(crate) fn arrive(&self) -> Vec<Said> {
        let mut state = self.state();
        let late = std::mem::take(&mut state.late);
        late.into_iter().map(|(tx_id, commands)| state.run(tx_id, &commands)).collect()
    }

    /// Returns the numbers of submissions and of reads.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let state = self.state();
        (state.submissions, state.reads)
    }

    /// Notifies all followers that changes were missed.
    pub(crate) fn miss(&self) {
        self.state().followers.retain(|follower| follower.send(News::Missed).is_ok());
    }

    /// Ends all followers.
    pub(crate) fn hang_up(&self) {
        self.state().followers.clear();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

impl State {
    fn run(&mut self, tx_id: TxId, commands: &Commands) -> Said {
        if let Some(said) = self.done.get(&tx_id) {
            return *said;
        }
        self.index += 1;
        let said = match self.table.execute(&Overlay::default(), commands) {
            Ok((diff, _)) => {
                self.table.apply(&diff).unwrap();
                let news = News::Changed(diff.iter().cloned().collect());
                self.followers.retain(|follower| follower.send(news.clone()).is_ok());
                Said::Done
            }
            Err(_) => Said::Differs,
        };
        self.done.insert(tx_id, said);
        said
    }
}

/// A node's view of the table.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    world: World,
    old: Arc<Mutex<Option<(u64, KeyValue)>>>,
}

impl Door {
    /// Freezes the local copy of this node at its current state. Reads of the newest state are unaffected.
    pub(crate) fn fall_behind(&self) {
        let state = self.world.state();
        *self.old.lock().unwrap() = Some((state.index, state.table.clone()));
    }

    pub(crate) fn open(&self) -> Ledger {
        Ledger::over(Box::new(self.clone()))
    }
}

#[async_trait]
impl Table for Door {
    async fn read(&self, commands: Commands, fresh: Fresh) -> Result<(u64, Values)> {
        tokio::task::yield_now().await;
        let old = self.old.lock().unwrap().clone().filter(|_| fresh == Fresh::AtHand);
        let mut state = self.world.state();
        state.reads += u64::from(fresh == Fresh::Newest);
        let (index, table) = old.as_ref().map_or((state.index, &state.table), |(index, old)| (*index, old));
        let (diff, values) =
            table.execute(&Overlay::default(), &commands).map_err(|why| trouble(false, why))?;
        assert!(diff.is_empty(), "a read that changes something");
        Ok((index, values))
    }

    async fn submit(&self, tx_id: TxId, commands: Commands) -> Result<Said> {
        tokio::task::yield_now().await;
        let fault = {
            let mut state = self.world.state();
            state.submissions += 1;
            let Some(fault) = state.faults.pop_front() else { return Ok(state.run(tx_id, &commands)) };
            match fault {
                Fault::LoseAnswer | Fault::Hang => drop(state.run(tx_id, &commands)),
                Fault::Delay => state.late.push((tx_id, commands)),
                Fault::LoseQuestion | Fault::NoQuorum => {}
            }
            fault
        };
        match fault {
            Fault::Hang | Fault::Delay => std::future::pending().await,
            Fault::NoQuorum => Err(trouble(true, "nobody leads")),
            Fault::LoseAnswer | Fault::LoseQuestion => Ok(Said::Unknown),
        }
    }

    fn follow(&self) -> Result<Box<dyn Following>> {
        let (sender, receiver) = unbounded_channel();
        self.world.state().followers.push(sender);
        Ok(Box::new(Follower(receiver)))
    }
}

struct Follower(UnboundedReceiver<News>);

#[async_trait]
impl Following for Follower {
    async fn next(&mut self) -> Option<News> {
        self.0.recv().await
    }
}

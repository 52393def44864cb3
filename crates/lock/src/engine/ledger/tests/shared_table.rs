//! A table in memory with several clients: the behaviour of a ledger, and its faults.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use holdoff_ledger::TxKey;
use holdoff_ledger::machine::{Commands, KeyValue, Overlay, StateMachine as _, Values};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::Error;
use crate::engine::ledger::LedgerStore;
use crate::engine::ledger::table::{ReadConsistency, Table, TableEvent, TableSubscription, TxOutcome};
use crate::store::Result;

/// A table that all clients share. A clone is the same table.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedTable(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    table: KeyValue,
    index: u64,
    done: HashMap<TxKey, TxOutcome>,
    followers: Vec<UnboundedSender<TableEvent>>,
    faults: VecDeque<Fault>,
    late: Vec<(TxKey, Commands)>,
    submissions: u64,
    reads: u64,
}

/// The fault that is injected into the next transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// It is committed, and its outcome is unknown.
    LoseResponse,
    /// It is not committed, and its outcome is unknown.
    LoseRequest,
    /// It is committed, and there is never a response.
    Hang,
    /// There is never a response, and [`SharedTable::arrive`] commits it.
    Delay,
    /// There is no leader: it has no effect.
    NoQuorum,
    /// It is committed, and the ledger has forgotten it when the next submission asks for its outcome.
    ExpireCommitted,
    /// It is not committed, and arrives after the ledger has forgotten the transactions since its birth.
    ExpireLost,
}

impl SharedTable {
    /// Returns the store of a separate process on this table.
    pub(crate) fn open(&self) -> LedgerStore {
        LedgerStore::new(Box::new(self.client()))
    }

    pub(crate) fn client(&self) -> TableClient {
        TableClient { shared: self.clone(), old: Arc::default() }
    }

    pub(crate) fn inject_fault(&self, fault: Fault) {
        self.state().faults.push_back(fault);
    }

    pub(crate) fn faults_left(&self) -> usize {
        self.state().faults.len()
    }

    /// Executes the delayed transactions, if their expectations hold.
    pub(crate) fn arrive(&self) -> Vec<TxOutcome> {
        let mut state = self.state();
        let late = std::mem::take(&mut state.late);
        late.into_iter().map(|(tx, commands)| state.run(tx, &commands)).collect()
    }

    /// Returns the numbers of submissions and of reads.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let state = self.state();
        (state.submissions, state.reads)
    }

    /// Notifies all followers that changes were missed.
    pub(crate) fn miss(&self) {
        self.state().followers.retain(|follower| follower.send(TableEvent::Missed).is_ok());
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
    fn run(&mut self, tx: TxKey, commands: &Commands) -> TxOutcome {
        if let Some(outcome) = self.done.get(&tx) {
            return *outcome;
        }
        self.index += 1;
        let outcome = match self.table.execute(&Overlay::default(), commands) {
            Ok((diff, _)) => {
                self.table.apply(&diff).unwrap();
                let event = TableEvent::Changed(diff.iter().cloned().collect());
                self.followers.retain(|follower| follower.send(event.clone()).is_ok());
                TxOutcome::Committed
            }
            Err(_) => TxOutcome::Conflict,
        };
        self.done.insert(tx, outcome);
        outcome
    }
}

/// A node's view of the table.
#[derive(Clone, Debug)]
pub(crate) struct TableClient {
    shared: SharedTable,
    old: Arc<Mutex<Option<(u64, KeyValue)>>>,
}

impl TableClient {
    /// Freezes the local copy of this node at its current state. Reads of the newest state are unaffected.
    pub(crate) fn fall_behind(&self) {
        let state = self.shared.state();
        *self.old.lock().unwrap() = Some((state.index, state.table.clone()));
    }

    pub(crate) fn open(&self) -> LedgerStore {
        LedgerStore::new(Box::new(self.clone()))
    }
}

#[async_trait]
impl Table for TableClient {
    async fn read(&self, commands: Commands, consistency: ReadConsistency) -> Result<(u64, Values)> {
        tokio::task::yield_now().await;
        let old = self.old.lock().unwrap().clone().filter(|_| consistency == ReadConsistency::Local);
        let mut state = self.shared.state();
        state.reads += u64::from(consistency == ReadConsistency::Newest);
        let (index, table) = old.as_ref().map_or((state.index, &state.table), |(index, old)| (*index, old));
        let (diff, values) =
            table.execute(&Overlay::default(), &commands).map_err(|why| Error::store(false, why))?;
        assert!(diff.is_empty(), "a read changed a value");
        Ok((index, values))
    }

    async fn submit(&self, tx: TxKey, commands: Commands) -> Result<TxOutcome> {
        // A node submits a transaction again under the same id while its outcome is unknown.
        loop {
            tokio::task::yield_now().await;
            let fault = {
                let mut state = self.shared.state();
                state.submissions += 1;
                let Some(fault) = state.faults.pop_front() else { return Ok(state.run(tx, &commands)) };
                match fault {
                    Fault::LoseResponse | Fault::Hang | Fault::ExpireCommitted => {
                        _ = state.run(tx, &commands);
                    }
                    Fault::Delay => state.late.push((tx, commands.clone())),
                    Fault::LoseRequest | Fault::NoQuorum | Fault::ExpireLost => {}
                }
                fault
            };
            match fault {
                Fault::Hang | Fault::Delay => std::future::pending().await,
                Fault::NoQuorum => return Err(Error::store(true, "there is no leader")),
                Fault::ExpireCommitted | Fault::ExpireLost => return Ok(TxOutcome::Expired),
                Fault::LoseResponse | Fault::LoseRequest => {}
            }
        }
    }

    fn subscribe(&self) -> Result<Box<dyn TableSubscription>> {
        let (sender, receiver) = unbounded_channel();
        self.shared.state().followers.push(sender);
        Ok(Box::new(Follower(receiver)))
    }
}

struct Follower(UnboundedReceiver<TableEvent>);

#[async_trait]
impl TableSubscription for Follower {
    async fn next(&mut self) -> Option<TableEvent> {
        self.0.recv().await
    }
}

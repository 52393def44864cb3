//! The thread that writes to the disk, and then performs the actions that depend on the written records, in order.

use std::io;

use tokio::sync::mpsc;

use super::Error;
use super::store::Store;
use super::task::Event;
use crate::entry::ReplicatedMachine;
use crate::ledger::Record;

/// The maximum number of batches in the queue of the writer. The node waits while the queue is full.
const MAX_QUEUED_BATCHES: usize = 16;

/// An action that may run only after all earlier records are on disk.
pub(super) type Action = Box<dyn FnOnce() + Send>;

/// Records to store, and the actions to run afterwards.
pub(super) struct Batch<M: ReplicatedMachine> {
    pub(super) records: Vec<Record<M>>,
    pub(super) actions: Vec<Action>,
}

impl<M: ReplicatedMachine> Default for Batch<M> {
    fn default() -> Self {
        Self { records: Vec::new(), actions: Vec::new() }
    }
}

impl<M: ReplicatedMachine> Batch<M> {
    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.actions.is_empty()
    }
}

/// The queue of the writer.
pub(super) type Batches<M> = mpsc::Sender<Batch<super::NodeState<M>>>;

/// Starts the writer's thread.
pub(super) fn start<M>(
    store: Store,
    events: mpsc::WeakSender<Event<M>>,
) -> io::Result<(Batches<M>, std::thread::JoinHandle<()>)>
where
    M: super::NodeMachine,
{
    let (batches, waiting) = mpsc::channel(MAX_QUEUED_BATCHES);
    let run = move || {
        if let Err(error) = write_batches(store, waiting) {
            // The actions of the failed batch do not run, and the node stops.
            if let Some(events) = events.upgrade() {
                drop(events.blocking_send(Event::DiskFailed(error)));
            }
        }
    };
    let thread = std::thread::Builder::new().name("ledger disk".to_owned()).spawn(run)?;
    Ok((batches, thread))
}

/// Writes all queued batches in one transaction.
fn write_batches<M: ReplicatedMachine>(
    mut store: Store,
    mut waiting: mpsc::Receiver<Batch<M>>,
) -> Result<(), Error> {
    while let Some(first) = waiting.blocking_recv() {
        let Batch { mut records, mut actions } = first;
        while let Ok(more) = waiting.try_recv() {
            records.extend(more.records);
            actions.extend(more.actions);
        }
        if !records.is_empty() {
            store.write::<M>(records)?;
        }
        for action in actions {
            action();
        }
    }
    Ok(())
}

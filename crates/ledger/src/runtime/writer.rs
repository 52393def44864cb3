//! The thread that stores. What depends on the disk is done when it is there, in order.

use std::io;

use tokio::sync::mpsc;

use super::Error;
use super::store::Store;
use super::task::Event;
use crate::entry::Replicated;
use crate::ledger::Record;

/// So many batches may wait for the disk; then the node waits, too.
const WAITING: usize = 16;

/// Something that may be done only when all that was stored before it is on disk.
pub(super) type Act = Box<dyn FnOnce() + Send>;

/// What is to be stored, and what is to be done then.
pub(super) struct Batch<M: Replicated> {
    pub(super) records: Vec<Record<M>>,
    pub(super) acts: Vec<Act>,
}

impl<M: Replicated> Default for Batch<M> {
    fn default() -> Self {
        Self { records: Vec::new(), acts: Vec::new() }
    }
}

impl<M: Replicated> Batch<M> {
    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.acts.is_empty()
    }
}

/// Where the batches of a node with this machine go.
pub(super) type Batches<M> = mpsc::Sender<Batch<super::Estate<M>>>;

/// Starts the thread.
pub(super) fn start<M>(
    store: Store,
    events: mpsc::WeakSender<Event<M>>,
) -> io::Result<(Batches<M>, std::thread::JoinHandle<()>)>
where
    M: super::Housed,
{
    let (batches, waiting) = mpsc::channel(WAITING);
    let keep = move || {
        if let Err(error) = keep(store, waiting) {
            // Whoever waited for what could not be stored is told nothing, and the node stops.
            if let Some(events) = events.upgrade() {
                drop(events.blocking_send(Event::Failed(error)));
            }
        }
    };
    let thread = std::thread::Builder::new().name("ledger disk".to_owned()).spawn(keep)?;
    Ok((batches, thread))
}

/// All batches that wait are one transaction.
fn keep<M: Replicated>(mut store: Store, mut waiting: mpsc::Receiver<Batch<M>>) -> Result<(), Error> {
    while let Some(first) = waiting.blocking_recv() {
        let Batch { mut records, mut acts } = first;
        while let Ok(more) = waiting.try_recv() {
            records.extend(more.records);
            acts.extend(more.acts);
        }
        if !records.is_empty() {
            store.write::<M>(records)?;
        }
        for act in acts {
            act();
        }
    }
    Ok(())
}

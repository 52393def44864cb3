//! What a node says of its disk. The disk is the test's.

use std::sync::Arc;

use holdoff_net::Key;
use holdoff_paxos::Slot;
use holdoff_paxos::log::Record;
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};

use super::cluster::{CONDITION_TIMEOUT, NAME, settings};
use crate::runtime::identity::{LedgerId, node_id};
use crate::runtime::lines::Lines;
use crate::runtime::store::{About, Store};
use crate::runtime::task::{Event, Parts, Task};
use crate::runtime::writer::Batch;
use crate::runtime::{Books, Estate};

type Batches = mpsc::Receiver<Batch<Estate<Books>>>;

/// A node that decides alone, and what it wants stored.
fn founder(folder: &TempDir) -> (mpsc::Sender<Event<Books>>, Batches) {
    let (key, store) = (Key::generate().unwrap(), Store::in_memory().unwrap());
    let founder = node_id(&key.public(), store.life());
    let about = About { ledger: LedgerId([1; 16]), founder };
    let parts = Parts::<Books> {
        namespace: NAME.to_owned(),
        about,
        lines: Arc::new(Lines::new(key.clone()).unwrap()),
        key,
        life: store.life(),
        address: "127.0.0.1:1".to_owned(),
        settings: settings(folder, "127.0.0.1:0".parse().unwrap()),
        store: store.load::<Estate<Books>>(&about).unwrap(),
        contacts: Vec::new(),
        book: Arc::default(),
    };
    let (task, _) = Task::new(parts).unwrap();
    let ((events, waiting), (disk, batches)) = (mpsc::channel(16), mpsc::channel(16));
    tokio::spawn(task.run(waiting, disk));
    (events, batches)
}

/// Asks for snapshots until one is wanted stored: before that there is nothing to make one of.
async fn compact(events: &mpsc::Sender<Event<Books>>, batches: &mut Batches) -> Slot {
    loop {
        let (reply, mut answer) = oneshot::channel();
        events.send(Event::Compact(reply)).await.unwrap();
        let through = loop {
            let Batch { records, acts } = batches.recv().await.unwrap();
            let snapshot = records.iter().any(|record| matches!(record, Record::Snapshot(_)));
            let early = answer.try_recv();
            assert!(!snapshot || early.is_err(), "{early:?} was answered, and is not stored yet");
            for act in acts {
                act();
            }
            if let Ok(through) = early.or_else(|_| answer.try_recv()) {
                break through;
            }
        };
        if through > Slot(0) {
            return through;
        }
    }
}

#[tokio::test]
async fn a_snapshot_is_answered_for_when_it_is_on_the_disk() {
    let folder = TempDir::new().unwrap();
    let (events, mut batches) = founder(&folder);
    let through = tokio::time::timeout(CONDITION_TIMEOUT, compact(&events, &mut batches)).await.unwrap();
    assert!(through > Slot(0));
}

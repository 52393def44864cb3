//! The order of writes and answers. The test plays the disk.

use std::sync::Arc;

use holdoff_net::SecretKey;
use holdoff_paxos::log::Record;
use holdoff_paxos::{NodeId, Slot};
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};

use super::{CONDITION_TIMEOUT, NAME, settings};
use crate::runtime::identity::LedgerId;
use crate::runtime::peers::Peers;
use crate::runtime::store::{LedgerInfo, Store};
use crate::runtime::task::{Event, Task, TaskParts};
use crate::runtime::writer::Batch;
use crate::runtime::{DefaultMachine, NodeState};

type Batches = mpsc::Receiver<Batch<NodeState<DefaultMachine>>>;

/// Starts a single voter, and returns its event queue and its batches.
fn founder(folder: &TempDir) -> (mpsc::Sender<Event<DefaultMachine>>, Batches) {
    let (key, store) = (SecretKey::generate().unwrap(), Store::in_memory().unwrap());
    let founder = NodeId::derive(key.public().as_bytes(), store.incarnation());
    let info = LedgerInfo { ledger: LedgerId([1; 16]), founder };
    let parts = TaskParts::<DefaultMachine> {
        namespace: NAME.to_owned(),
        info,
        peers: Arc::new(Peers::new(key.clone()).unwrap()),
        key,
        incarnation: store.incarnation(),
        address: "127.0.0.1:1".to_owned(),
        settings: settings(folder, "127.0.0.1:0".parse().unwrap()),
        store: store.load::<NodeState<DefaultMachine>>(&info).unwrap(),
        contacts: Vec::new(),
        address_book: Arc::default(),
    };
    let (task, _) = Task::new(parts).unwrap();
    let ((events, waiting), (disk, batches)) = (mpsc::channel(16), mpsc::channel(16));
    tokio::spawn(task.run(waiting, disk));
    (events, batches)
}

/// Requests snapshots until the node stores one. Before its first signed entry there is none.
async fn compact(events: &mpsc::Sender<Event<DefaultMachine>>, batches: &mut Batches) -> Slot {
    loop {
        let (reply, mut answer) = oneshot::channel();
        events.send(Event::Compact(reply)).await.unwrap();
        let through = loop {
            let Batch { records, actions } = batches.recv().await.unwrap();
            let snapshot = records.iter().any(|record| matches!(record, Record::Snapshot(_)));
            let early = answer.try_recv();
            assert!(!snapshot || early.is_err(), "answered {early:?} before the snapshot was stored");
            for action in actions {
                action();
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
async fn compact_answers_only_after_the_snapshot_is_on_disk() {
    let folder = TempDir::new().unwrap();
    let (events, mut batches) = founder(&folder);
    let through = tokio::time::timeout(CONDITION_TIMEOUT, compact(&events, &mut batches)).await.unwrap();
    assert!(through > Slot(0));
}

//! The order of writes and answers. The test plays the disk.

use holdoff_driver::{Driver, WriteOptions};
use holdoff_net::SecretKey;
use holdoff_paxos::log::Record;
use holdoff_paxos::{Configuration, NodeId, Slot};

use crate::machine::KeyValue;
use crate::runtime::identity::{LedgerId, NodeNotary};
use crate::{Input, Ledger, Options, Output};

#[test]
fn compact_answers_only_after_the_snapshot_is_on_disk() {
    let key = SecretKey::generate().unwrap();
    let me = NodeId::derive(key.public().as_bytes(), 1);
    let notary = NodeNotary::new(LedgerId([1; 16]), key, 1);
    let store = Ledger::<KeyValue, NodeNotary>::empty(Configuration::new([me]).unwrap());
    let mut options = Options::default();
    options.log.early = true;
    let ledger = Ledger::<KeyValue, _>::new(me, options, notary, store.into(), 0, 0).unwrap();
    let mut driver = Driver::new(ledger, WriteOptions::default());
    for now_us in (0..10_000_000).step_by(25_000) {
        driver.step(now_us, &mut || 0, Input::Tick);
        driver.write_through(now_us, &mut || 0, |_| Ok::<_, ()>(())).unwrap();
    }
    driver.take_outputs();
    driver.step(10_000_000, &mut || 0, Input::Compact);
    let outputs = driver.take_outputs();
    let [Output::SaveSnapshot(snapshot), Output::Compacted(Slot(0))] = outputs[..] else {
        panic!("{outputs:?}")
    };
    driver.step(10_000_000, &mut || 0, Input::SnapshotSaved { snapshot, chunks: 1 });
    driver.step(10_000_000, &mut || 0, Input::Compact);
    assert!(driver.take_outputs().is_empty(), "the snapshot is not on disk");
    let write = driver.begin_write(10_000_000).unwrap();
    assert!(write.records().iter().any(|record| matches!(record, Record::Snapshot(_))));
    let written = write.store(|_| Ok::<_, ()>(())).unwrap();
    driver.finish_write(10_000_000, &mut || 0, written);
    let outputs = driver.take_outputs();
    assert!(
        outputs.iter().any(|output| matches!(output, Output::Compacted(through) if *through > Slot(0))),
        "{outputs:?}"
    );
}

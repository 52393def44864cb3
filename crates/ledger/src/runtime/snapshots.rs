//! The chunks of snapshots on disk, and the threads that write and read them beside the core's task.
//!
//! One thread writes: it saves the node's own snapshots, stores received chunks, and loads the content of a received
//! snapshot. Another one reads the chunks that other nodes request. Neither holds more than a few chunks in memory.
//!
//! Most writes do not wait for the disk: chunks reach it several at a time, the last ones with the record that makes the
//! snapshot the log's. A node that restarts before that counts the chunks that it finds.
//!
//! A snapshot stays on disk while it is the log's, while its content is received or saved, and for
//! `READ_LEASE` after another node has read a chunk of it: a node that is slower than the interval between two snapshots
//! thus receives the whole snapshot. If that lease ends, the reader receives the answer that the snapshot is gone, and the
//! transfer begins again with a later one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use holdoff_disk::DiskError;
use parking_lot::Mutex;

use super::clock;
use super::error::Error;
use super::store::ChunkStore;
use crate::entry::{Hash, ReplicatedMachine};
use crate::ledger::Input;
use crate::state::{SnapshotContent, SnapshotDescription};

/// The time for which a snapshot stays on disk after a chunk of it was read.
const READ_LEASE: Duration = Duration::from_secs(30);
/// The maximum number of replaced snapshots that stay on disk for their readers.
const MAX_LEASED: usize = 2;
/// The maximum number of requests for chunks in the queue of the reader. Further requests are dropped, and repeated by
/// their senders.
const MAX_READS: usize = 256;

/// A task of the writing thread.
pub(super) enum SnapshotJob<M: ReplicatedMachine> {
    Save(Hash, SnapshotContent<M>),
    Expect(Option<Box<SnapshotDescription>>),
    Store { snapshot: Hash, number: u64, bytes: Bytes },
    Load(Hash, u64),
}

/// A request of another node for a chunk, and the function that sends the reply.
pub(super) struct ChunkRead {
    pub(super) snapshot: Hash,
    pub(super) number: u64,
    pub(super) reply: Box<dyn FnOnce(Option<Bytes>) + Send>,
}

/// The times of the last reads of each snapshot.
type ReadTimes = Arc<Mutex<BTreeMap<Hash, u64>>>;

/// The handle of the two threads.
pub(super) struct SnapshotThreads<M: ReplicatedMachine> {
    jobs: Sender<SnapshotJob<M>>,
    reads: SyncSender<ChunkRead>,
    threads: Vec<JoinHandle<()>>,
}

impl<M> SnapshotThreads<M>
where
    M: ReplicatedMachine<Goal: Send, Diff: Send, Answer: Send> + Send + 'static,
{
    /// Starts the threads. The writer passes the results to `finished`; after an error it ends.
    pub(super) fn start(
        chunks: &ChunkStore,
        chunk_bytes: usize,
        finished: impl FnMut(Result<Input<M>, Error>) + Send + 'static,
    ) -> Result<Self, Error> {
        let ((jobs, queue), (reads, requests)) = (channel(), sync_channel(MAX_READS));
        let read_times = ReadTimes::default();
        let (chunks, saved) = (chunks.clone(), None);
        let writer = Writer {
            chunks: chunks.clone(),
            chunk_bytes,
            queue,
            read_times: read_times.clone(),
            saved,
            finished,
        };
        let reader = move || read(&chunks, &requests, &read_times);
        let threads = vec![
            Builder::new()
                .name("ledger snapshots".to_owned())
                .spawn(move || writer.run())
                .map_err(DiskError::new)?,
            Builder::new().name("ledger chunks".to_owned()).spawn(reader).map_err(DiskError::new)?,
        ];
        Ok(Self { jobs, reads, threads })
    }

    /// Queues a task. After an error of the disk this has no effect: the node stops.
    pub(super) fn begin(&self, job: SnapshotJob<M>) {
        drop(self.jobs.send(job));
    }

    /// Queues a request for a chunk, or drops it if too many are waiting.
    pub(super) fn read(&self, read: ChunkRead) {
        drop(self.reads.try_send(read));
    }

    /// Ends the threads. A snapshot that is being saved stays incomplete. Blocks until then.
    pub(super) fn join(self) {
        let Self { jobs, reads, threads } = self;
        drop((jobs, reads));
        for thread in threads {
            // A panic of a thread has the same effect as a failed write: nothing more is stored.
            drop(thread.join());
        }
    }
}

/// Sends the chunks that other nodes request.
fn read(chunks: &ChunkStore, requests: &Receiver<ChunkRead>, read_times: &ReadTimes) {
    while let Ok(ChunkRead { snapshot, number, reply }) = requests.recv() {
        let bytes = chunks.get(snapshot, number).unwrap_or_else(|error| {
            tracing::error!(%error, %snapshot, number, "failed to read a chunk of a snapshot for another node");
            None
        });
        if bytes.is_some() {
            read_times.lock().insert(snapshot, clock::now_us());
        }
        reply(bytes.map(Bytes::from));
    }
}

struct Writer<M: ReplicatedMachine, F> {
    chunks: ChunkStore,
    chunk_bytes: usize,
    queue: Receiver<SnapshotJob<M>>,
    read_times: ReadTimes,
    /// The last saved snapshot, which may not be the log's yet.
    saved: Option<Hash>,
    finished: F,
}

impl<M: ReplicatedMachine, F: FnMut(Result<Input<M>, Error>)> Writer<M, F> {
    fn run(mut self) {
        let mut next = None;
        while let Some(job) = next.take().or_else(|| self.queue.recv().ok()) {
            let done = match job {
                SnapshotJob::Save(snapshot, content) => self.save(snapshot, &content, &mut next),
                SnapshotJob::Expect(snapshot) => {
                    let stored = self.chunks.expect(snapshot.as_deref());
                    stored.and_then(|()| self.delete_unused()).map(|()| None)
                }
                SnapshotJob::Store { snapshot, number, bytes } => {
                    let stored = self.chunks.put(snapshot, number, &bytes);
                    stored.map(|()| Some(Input::ChunkStored { snapshot, number }))
                }
                SnapshotJob::Load(snapshot, chunks) => self.load(snapshot, chunks).map(Some),
            };
            let has_failed = done.is_err();
            if let Some(result) = done.transpose() {
                (self.finished)(result);
            }
            if has_failed {
                return;
            }
        }
    }

    /// Writes the content of a snapshot, after the chunks that are no longer needed are deleted. Ends early if the node
    /// stops.
    fn save(
        &mut self,
        snapshot: Hash,
        content: &SnapshotContent<M>,
        next: &mut Option<SnapshotJob<M>>,
    ) -> Result<Option<Input<M>>, Error> {
        self.saved = Some(snapshot);
        self.delete_unused()?;
        let mut count = 0;
        for chunk in content.chunks(self.chunk_bytes) {
            if next.is_none() {
                match self.queue.try_recv() {
                    Ok(job) => *next = Some(job),
                    Err(TryRecvError::Disconnected) => return Ok(None),
                    Err(TryRecvError::Empty) => {}
                }
            }
            self.chunks.put(snapshot, count, &chunk)?;
            count += 1;
        }
        Ok(Some(Input::SnapshotSaved { snapshot, chunks: count }))
    }

    fn load(&self, snapshot: Hash, chunks: u64) -> Result<Input<M>, Error> {
        let loaded = self.chunks.load(snapshot, chunks)?.map(Box::new);
        Ok(Input::SnapshotLoaded { snapshot, loaded })
    }

    fn delete_unused(&self) -> Result<(), Error> {
        let mut kept = self.leased();
        kept.extend(self.saved);
        self.chunks.delete_unused(kept)
    }

    /// Returns the snapshots that other nodes have read lately, the last of them first.
    fn leased(&self) -> Vec<Hash> {
        let since_us = clock::now_us().saturating_sub(holdoff_policy::as_micros_u64(READ_LEASE));
        let mut read_times = self.read_times.lock();
        read_times.retain(|_, read_us| *read_us >= since_us);
        let mut leased: Vec<_> = read_times.iter().map(|(snapshot, read_us)| (*read_us, *snapshot)).collect();
        leased.sort_unstable_by(|one, other| other.cmp(one));
        leased.into_iter().take(MAX_LEASED).map(|(_, snapshot)| snapshot).collect()
    }
}

#[cfg(test)]
mod tests {
    use holdoff_paxos::{Configuration, NodeId};

    use super::*;
    use crate::dedup::DedupLimits;
    use crate::machine::{Command, Key, KeyValue, StateMachine as _, Value};
    use crate::runtime::store::Store;
    use crate::state::State;

    const CHUNK_BYTES: usize = 256;

    /// A content of several chunks.
    fn content() -> SnapshotContent<KeyValue> {
        let mut state =
            State::<KeyValue>::new(Configuration::new([NodeId(1)]).unwrap(), DedupLimits::default());
        let put = |row: i64| Command::Put(Key::new(format!("row {row}")).unwrap(), Value::from(row));
        let (diff, _) = state.machine.execute(&<_>::default(), &(0..60).map(put).collect()).unwrap();
        state.machine.apply(&diff).unwrap();
        state.checkpoint().1
    }

    fn id(byte: u8) -> Hash {
        Hash([byte; 32])
    }

    struct Fixture {
        threads: SnapshotThreads<KeyValue>,
        finished: Receiver<Result<Input<KeyValue>, Error>>,
        chunks: ChunkStore,
    }

    impl Fixture {
        fn new() -> Self {
            let chunks = Store::in_memory().unwrap().chunks();
            let (sender, finished) = channel();
            let threads =
                SnapshotThreads::start(&chunks, CHUNK_BYTES, move |result| drop(sender.send(result)));
            Self { threads: threads.unwrap(), finished, chunks }
        }

        fn run(&self, job: SnapshotJob<KeyValue>) -> Input<KeyValue> {
            self.threads.begin(job);
            self.finished.recv().unwrap().unwrap()
        }

        /// Saves a snapshot, and returns the number of its chunks.
        fn save(&self, byte: u8) -> u64 {
            match self.run(SnapshotJob::Save(id(byte), content())) {
                Input::SnapshotSaved { snapshot, chunks } if snapshot == id(byte) => chunks,
                other => panic!("{other:?}"),
            }
        }

        /// Reads a chunk as another node does.
        fn read(&self, byte: u8, number: u64) -> Option<Bytes> {
            let (sender, chunk) = channel();
            let reply = Box::new(move |bytes| sender.send(bytes).unwrap());
            self.threads.read(ChunkRead { snapshot: id(byte), number, reply });
            chunk.recv().unwrap()
        }
    }

    #[test]
    fn a_replaced_snapshot_stays_as_long_as_it_is_read() {
        let fixture = Fixture::new();
        let chunks = fixture.save(1);
        assert!(chunks > 3, "{chunks}");
        let first = fixture.read(1, 0);
        for byte in 2..=5 {
            fixture.save(byte);
            let read = fixture.read(1, u64::from(byte) - 1);
            assert!(read.is_some() && read != first, "the reader of snapshot 1 gets its next chunk");
        }
        assert_eq!(fixture.read(2, 0), None, "no node has read the snapshot before it was replaced");
        assert!(fixture.chunks.get(id(5), chunks - 1).unwrap().is_some());
    }

    #[test]
    fn received_chunks_are_loaded_and_a_missing_one_is_named() {
        let (source, receiver) = (Fixture::new(), Fixture::new());
        let chunks = source.save(1);
        for number in (0..chunks).filter(|number| *number != 2) {
            let bytes = source.read(1, number).unwrap();
            receiver.run(SnapshotJob::Store { snapshot: id(1), number, bytes });
        }
        let Input::SnapshotLoaded { loaded, .. } = receiver.run(SnapshotJob::Load(id(1), chunks)) else {
            panic!("the content is loaded")
        };
        assert_eq!(loaded.unwrap_err(), 2);
        let bytes = source.read(1, 2).unwrap();
        receiver.run(SnapshotJob::Store { snapshot: id(1), number: 2, bytes });
        let Input::SnapshotLoaded { loaded, .. } = receiver.run(SnapshotJob::Load(id(1), chunks)) else {
            panic!("the content is loaded")
        };
        assert!(loaded.unwrap().chunks(CHUNK_BYTES).eq(content().chunks(CHUNK_BYTES)));
        receiver.threads.join();
    }
}

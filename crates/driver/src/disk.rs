//! A thread that carries out the writes of a driver.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use crate::{Write, Written};

/// A disk that stores records.
pub trait Disk<R> {
    /// The reason of a failed write.
    type Error;

    /// Stores all records in one transaction, in order. When this returns, they are on disk.
    ///
    /// After an error the content of the disk is unknown: the caller writes nothing more.
    fn write(&mut self, records: Vec<R>) -> Result<(), Self::Error>;
}

/// A thread that carries out the writes of one driver, so that the node can process events meanwhile.
///
/// The thread stores all queued writes in one transaction. It ends after the first failed write, or when the last write is
/// carried out after this handle is dropped.
#[derive(Debug)]
pub struct DiskThread<R> {
    queue: Sender<Write<R>>,
    thread: JoinHandle<()>,
}

impl<R: Send + 'static> DiskThread<R> {
    /// Starts the thread. It calls `finished` after each transaction.
    pub fn start<D>(
        name: &str,
        disk: D,
        finished: impl FnMut(Result<Written, D::Error>) + Send + 'static,
    ) -> io::Result<Self>
    where
        D: Disk<R> + Send + 'static,
    {
        let (queue, writes) = mpsc::channel();
        let thread =
            thread::Builder::new().name(name.to_owned()).spawn(move || run(disk, &writes, finished))?;
        Ok(Self { queue, thread })
    }

    /// Queues a write. The driver limits the number of writes in progress. After a failed write this has no effect.
    pub fn write(&self, write: Write<R>) {
        drop(self.queue.send(write));
    }

    /// Carries out the queued writes and ends the thread. Blocks until then.
    pub fn join(self) {
        let Self { queue, thread } = self;
        drop(queue);
        // A panic of the disk has the same effect as a failed write: nothing is released.
        drop(thread.join());
    }
}

fn run<R, D: Disk<R>>(
    mut disk: D,
    writes: &Receiver<Write<R>>,
    mut finished: impl FnMut(Result<Written, D::Error>),
) {
    while let Ok(mut write) = writes.recv() {
        while let Ok(next) = writes.try_recv() {
            write.append(next);
        }
        let result = write.store(|records| disk.write(records));
        let has_failed = result.is_err();
        finished(result);
        if has_failed {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A disk that fails at a certain record.
    struct TestDisk(Arc<Mutex<Vec<Vec<u8>>>>);

    impl Disk<u8> for TestDisk {
        type Error = &'static str;

        fn write(&mut self, records: Vec<u8>) -> Result<(), &'static str> {
            if records.contains(&9) {
                return Err("disk full");
            }
            self.0.lock().unwrap().push(records);
            Ok(())
        }
    }

    #[test]
    fn queued_writes_are_stored_in_order_until_one_fails() {
        let (stored, results) = (Arc::default(), Arc::new(Mutex::new(Vec::new())));
        let finished = results.clone();
        let thread = DiskThread::start("test disk", TestDisk(Arc::clone(&stored)), move |result| {
            finished.lock().unwrap().push(result.map(|written| written.through));
        });
        let thread = thread.unwrap();
        for number in 1..=20_u8 {
            thread.write(Write { records: vec![number % 10], through: u64::from(number) });
        }
        thread.join();
        let results = results.lock().unwrap();
        assert_eq!(results.last(), Some(&Err("disk full")));
        let through = results.iter().filter_map(|result| result.as_ref().ok()).max().copied().unwrap_or(0);
        let stored: Vec<u8> = stored.lock().unwrap().concat();
        assert_eq!(stored, (1..=u8::try_from(through).unwrap()).collect::<Vec<_>>());
    }
}

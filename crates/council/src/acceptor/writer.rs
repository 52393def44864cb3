//! The single writer for all councils: answers all queued requests together, after one commit.
//!
//! A thread takes the requests that arrived while the disk was busy, and passes them to the driver of the acceptor. The driver
//! stores all their records in one transaction, and only then releases the answers. The thread never waits for a batch to fill.
//! Because there is only one writer, two connections never race on a promise.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, OnceLock};
use std::{fmt, thread};

use holdoff_driver::{Driver, WriteOptions};
use holdoff_policy::{ClassMap, Classify, Failure};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{mpsc, oneshot};

use super::core::{AcceptorAnswer, AcceptorCore};
use super::inspector::{CouncilIndex, CouncilPage, CouncilQuery, CouncilUsage};
use super::stats::{AcceptorStats, StatsRecorder};
use super::{AcceptorLimits, LinkPush, Store, StoreError};
use crate::{
    AcceptorReply, AcceptorRequest, AddressedReply, CouncilId, PublicKey, Recipient, Requester, Verifier,
    clock, metrics,
};

/// A handle to the writer. After the last clone is dropped, the writer answers the queued requests and ends.
#[derive(Debug)]
pub struct Writer<W: Watcher> {
    queue: mpsc::Sender<Job<W>>,
    shared: Arc<Shared<W>>,
}

/// A view of the writer. Holding it does not keep the writer running.
#[derive(Debug)]
pub(super) struct WriterInspector<W: Watcher> {
    queue: mpsc::WeakSender<Job<W>>,
    shared: Arc<Shared<W>>,
}

/// The error of an acceptor that has stopped. It answers no requests.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("this acceptor has stopped: {0}")]
pub struct AcceptorStopped(#[source] pub AcceptorStopReason);

/// The reason why an acceptor has stopped.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptorStopReason {
    /// The disk has failed. Unstored requests were not answered.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The writer's thread has panicked. Unstored requests were not answered.
    #[error("its writer ended unexpectedly, by a defect of this program")]
    Panicked,
    /// The process stops the acceptor.
    #[error("its writer has ended")]
    Ended,
}

/// The acceptor answers again after its process has been started again.
impl Classify for AcceptorStopped {
    fn classify(&self, _: &ClassMap) -> Failure {
        Failure::permanent()
    }
}

#[derive(Debug)]
struct Shared<W: Watcher> {
    stopped: OnceLock<AcceptorStopReason>,
    watchers: Mutex<Watchers<W>>,
    stats: Mutex<StatsRecorder>,
    /// Limits the queries for the list of councils to one at a time, so that a vote waits for at most one of them.
    looking: tokio::sync::Mutex<()>,
    incarnation: u64,
}

impl<W: Watcher> Shared<W> {
    fn watchers(&self) -> MutexGuard<'_, Watchers<W>> {
        self.watchers.lock()
    }

    fn stats(&self) -> MutexGuard<'_, StatsRecorder> {
        self.stats.lock()
    }

    fn stopped(&self) -> AcceptorStopped {
        AcceptorStopped(self.stopped.get().cloned().unwrap_or(AcceptorStopReason::Ended))
    }
}

/// A job for the writer.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "almost all jobs are requests")]
enum Job<W> {
    Request(PendingRequest<W>),
    ListCouncils(CouncilQuery, oneshot::Sender<CouncilPage>),
}

/// A request of a client.
#[derive(Debug)]
struct PendingRequest<W> {
    council: CouncilId,
    requester: Requester,
    request: AcceptorRequest,
    /// Whether the value of the request is signed. The connection's task checks this in advance, because it takes
    /// longer than the rest.
    is_signed: bool,
    from: Option<W>,
    reply_to: ReplyTo<W>,
}

/// The receiver of an answer.
#[derive(Debug)]
enum ReplyTo<W> {
    /// A caller that waits.
    Caller(oneshot::Sender<Vec<AcceptorReply>>),
    /// A connection, as pushes with this tag.
    Connection(W, u64),
}

/// The destination of an answer.
#[derive(Debug)]
struct ReplyPath<W: Watcher> {
    council: CouncilId,
    kind: &'static str,
    from: Option<W::Id>,
    reply_to: ReplyTo<W>,
}

impl<W: Watcher> Clone for Writer<W> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), shared: self.shared.clone() }
    }
}

impl<W: Watcher> Writer<W> {
    /// Starts the writer's thread. The caller can join the thread after it has dropped every clone of the writer.
    pub fn start(store: Store, limits: AcceptorLimits) -> std::io::Result<(Self, thread::JoinHandle<()>)> {
        let (queue, waiting) = mpsc::channel(limits.queue.max(1));
        let watchers = Mutex::new(Watchers::new(limits));
        let shared = Arc::new(Shared {
            stopped: OnceLock::new(),
            watchers,
            stats: Mutex::new(StatsRecorder::new(clock::now())),
            looking: tokio::sync::Mutex::new(()),
            incarnation: store.incarnation(),
        });
        metrics::stopped(false);
        metrics::keeps(store.councils(), 0);
        let writer = WriterThread {
            limits,
            index: CouncilIndex::new(store.all()),
            driver: Driver::new(AcceptorCore::new(limits, store.all()), WriteOptions::default()),
            store,
            shared: shared.clone(),
            has_ended_well: false,
        };
        let thread = thread::Builder::new().name("acceptor".to_owned()).spawn(move || writer.run(waiting))?;
        Ok((Self { queue, shared }, thread))
    }

    /// Returns the incarnation of the store.
    pub fn incarnation(&self) -> u64 {
        self.shared.incarnation
    }

    /// Returns a view of the writer for operators.
    pub(super) fn inspector(&self) -> WriterInspector<W> {
        WriterInspector { queue: self.queue.downgrade(), shared: self.shared.clone() }
    }

    /// Counts a message that the acceptor refuses because it cannot be decoded.
    pub(super) fn refused(&self, reason: &'static str) {
        self.shared.stats().refused(reason);
        metrics::refused(reason);
    }

    /// Sends a request, and waits until the records on which the answer depends are on disk.
    ///
    /// If the queue is full, this function waits for a free entry. If the caller drops the future after the request
    /// was queued, the writer still processes the request, and discards the answer.
    pub async fn request(
        &self,
        council: CouncilId,
        requester: Requester,
        request: AcceptorRequest,
        from: Option<W>,
        verifier: &(dyn Verifier + Sync),
    ) -> Result<Vec<AcceptorReply>, AcceptorStopped> {
        let is_signed = request.is_signed(council, verifier);
        let (reply, answer) = oneshot::channel();
        let reply_to = ReplyTo::Caller(reply);
        let pending = PendingRequest { council, requester, request, is_signed, from, reply_to };
        self.queue.send(Job::Request(pending)).await.map_err(|_| self.shared.stopped())?;
        answer.await.map_err(|_| self.shared.stopped())
    }

    /// Queues a request. The writer pushes the answers to the connection, with this tag, when the records on which they
    /// depend are on disk. If the queue is full, this function waits for a free entry.
    pub async fn post(
        &self,
        council: CouncilId,
        requester: Requester,
        request: AcceptorRequest,
        (from, tag): (W, u64),
        verifier: &(dyn Verifier + Sync),
    ) -> Result<(), AcceptorStopped> {
        let is_signed = request.is_signed(council, verifier);
        let reply_to = ReplyTo::Connection(from.clone(), tag);
        let pending = PendingRequest { council, requester, request, is_signed, from: Some(from), reply_to };
        self.queue.send(Job::Request(pending)).await.map_err(|_| self.shared.stopped())
    }

    /// Pushes a reply to a connection. A connection that reads too slowly misses it.
    pub(super) fn push(&self, to: &W, council: CouncilId, tag: u64, reply: AcceptorReply) {
        push(to, &LinkPush { incarnation: self.shared.incarnation, council, tag, reply });
    }

    /// Waits until the writer has stopped, which happens only after a disk failure or a defect of this program, and
    /// returns the reason.
    pub async fn ended(&self) -> AcceptorStopped {
        self.queue.closed().await;
        self.shared.stopped()
    }

    /// Registers a connection. From now on the connection watches each council that it fetches.
    pub fn joined(&self, id: W::Id) {
        self.shared.watchers().joined(id);
    }

    /// Removes a connection, which then watches no council any more.
    pub fn left(&self, id: W::Id) {
        self.shared.watchers().remove(id);
    }

    /// Returns the number of connections that watch a council.
    pub fn watchers(&self, council: CouncilId) -> usize {
        self.shared.watchers().of(council)
    }
}

impl<W: Watcher> WriterInspector<W> {
    pub(super) fn stopped(&self) -> Option<AcceptorStopReason> {
        self.shared.stopped.get().cloned()
    }

    pub(super) fn stats(&self) -> AcceptorStats {
        self.shared.stats().stats(clock::now())
    }

    pub(super) async fn councils(&self, query: CouncilQuery) -> Result<CouncilPage, AcceptorStopped> {
        let _alone = self.shared.looking.lock().await;
        let queue = self.queue.upgrade().ok_or_else(|| self.shared.stopped())?;
        let (reply, answer) = oneshot::channel();
        queue.send(Job::ListCouncils(query, reply)).await.map_err(|_| self.shared.stopped())?;
        drop(queue);
        answer.await.map_err(|_| self.shared.stopped())
    }
}

/// The state of the writer's thread.
struct WriterThread<W: Watcher> {
    limits: AcceptorLimits,
    index: CouncilIndex,
    store: Store,
    driver: Driver<AcceptorCore<ReplyPath<W>>>,
    shared: Arc<Shared<W>>,
    has_ended_well: bool,
}

impl<W: Watcher> WriterThread<W> {
    fn run(mut self, mut waiting: mpsc::Receiver<Job<W>>) {
        let mut batch = Vec::with_capacity(self.limits.batch);
        while waiting.blocking_recv_many(&mut batch, self.limits.batch.max(1)) > 0 {
            let (mut requests, mut queries) = (Vec::with_capacity(batch.len()), Vec::new());
            for job in batch.drain(..) {
                match job {
                    Job::Request(pending) => requests.push(pending),
                    Job::ListCouncils(query, reply) => queries.push((query, reply)),
                }
            }
            if let Err(error) = self.serve(requests) {
                self.stop(error.into());
                return;
            }
            // After the commit, so that the reply shows only data that is on disk.
            for (query, reply) in queries {
                drop(reply.send(self.index.page(&query, clock::now(), self.driver.core().memory())));
            }
        }
        self.has_ended_well = true;
    }

    /// Answers a batch of requests. After an error, no answer of the batch was sent, and no further answer may be
    /// sent.
    fn serve(&mut self, batch: Vec<PendingRequest<W>>) -> Result<(), StoreError> {
        if batch.is_empty() {
            return Ok(());
        }
        metrics::answered(batch.len());
        self.shared.stats().answered(clock::now(), batch.len());
        for pending in batch {
            self.step(pending)?;
        }
        let (store, shared) = (&mut self.store, &self.shared);
        self.driver.write_through(u64::MAX, &mut no_roll, |records| {
            let begin = clock::now();
            let written = store.write(records);
            let end = clock::now();
            metrics::committed(end.saturating_sub(begin));
            shared.stats().committed(end, end.saturating_sub(begin));
            written
        })?;
        for AcceptorAnswer { path, replies } in self.driver.take_outputs() {
            self.reply(path, replies);
        }
        self.driver.core_mut().make_room();
        metrics::keeps(self.store.councils(), self.driver.core().memory());
        Ok(())
    }

    fn step(&mut self, pending: PendingRequest<W>) -> Result<(), StoreError> {
        let PendingRequest { council, requester, request, is_signed, from, reply_to } = pending;
        let path =
            ReplyPath { council, kind: request.name(), from: from.as_ref().map(Watcher::id), reply_to };
        let watcher = from.filter(|_| matches!(request, AcceptorRequest::Fetch { .. }));
        let load = |council| {
            metrics::loaded();
            self.store.load(council)
        };
        let asked = self.driver.core().request(council, requester, request, is_signed, path, load)?;
        self.driver.step(0, &mut no_roll, asked);
        let core = self.driver.core();
        if let Some(acceptor) = core.acceptor(&council).filter(|_| core.knows(&council)) {
            if let Some(watcher) = watcher.filter(|watcher| acceptor.may_read(&watcher.key())) {
                self.shared.watchers().add(council, watcher);
            }
            self.index.note(council, CouncilUsage::of(acceptor), clock::now());
        }
        Ok(())
    }

    fn reply(&self, path: ReplyPath<W>, answers: Vec<AddressedReply>) {
        let ReplyPath { council, kind, from, reply_to } = path;
        let mut replies = Vec::new();
        for AddressedReply { to, reply } in answers {
            match to {
                Recipient::Requester => replies.push(reply),
                Recipient::Watchers => self.push(council, from, reply),
            }
        }
        let refusal = replies.iter().find_map(|reply| match reply {
            AcceptorReply::Refused { why, .. } => Some(why.name()),
            _ => None,
        });
        metrics::requested(kind, refusal.is_some());
        refusal.into_iter().for_each(metrics::refused);
        let mut stats = self.shared.stats();
        stats.requested(kind);
        if let Some(reason) = refusal {
            stats.refused(reason);
        }
        drop(stats);
        match reply_to {
            // The client may have disconnected; its request is processed all the same.
            ReplyTo::Caller(caller) => drop(caller.send(replies)),
            ReplyTo::Connection(to, tag) => {
                let incarnation = self.shared.incarnation;
                for reply in replies {
                    push(&to, &LinkPush { incarnation, council, tag, reply });
                }
            }
        }
    }

    fn push(&self, council: CouncilId, but: Option<W::Id>, reply: AcceptorReply) {
        let mut watchers = self.shared.watchers();
        if watchers.of(council) == 0 {
            return;
        }
        if let Ok(message) =
            postcard::to_allocvec(&LinkPush { incarnation: self.shared.incarnation, council, tag: 0, reply })
        {
            let acceptor = self.driver.core().acceptor(&council);
            let may_read = |key: &_| acceptor.is_some_and(|acceptor| acceptor.may_read(key));
            watchers.push(council, but, may_read, &message);
        }
    }

    fn stop(&self, why: AcceptorStopReason) {
        tracing::error!(
            reason = %why,
            "stopped the acceptor: it answers no requests until it is started again"
        );
        metrics::stopped(true);
        drop(self.shared.stopped.set(why));
    }
}

fn push(to: &impl Watcher, push: &LinkPush) {
    if let Ok(message) = postcard::to_allocvec(push) {
        to.push(&message);
    }
}

/// The random numbers of an acceptor: it draws none.
fn no_roll() -> u32 {
    0
}

/// Marks the writer as stopped, even if the thread ends unexpectedly.
impl<W: Watcher> Drop for WriterThread<W> {
    fn drop(&mut self) {
        if !self.has_ended_well && self.shared.stopped.get().is_none() {
            self.stop(AcceptorStopReason::Panicked);
        }
    }
}

/// A connection to which the acceptor can push messages.
pub trait Watcher: Clone + fmt::Debug + Send + 'static {
    /// The id of a connection.
    type Id: Copy + Eq + Hash + fmt::Debug + Send;

    /// Returns the id of this connection.
    fn id(&self) -> Self::Id;

    /// Returns the key of the client.
    fn key(&self) -> PublicKey;

    /// Pushes a message without waiting. A connection that reads too slowly misses the message and learns that it
    /// has missed one.
    ///
    /// Returns whether the connection is still open.
    fn push(&self, message: &[u8]) -> bool;
}

/// The watchers of all councils.
#[derive(Debug)]
pub(super) struct Watchers<W: Watcher> {
    limits: AcceptorLimits,
    by_council: HashMap<CouncilId, Vec<W>>,
    watching: HashMap<W::Id, Vec<CouncilId>>,
    count: usize,
}

impl<W: Watcher> Watchers<W> {
    pub(super) fn new(limits: AcceptorLimits) -> Self {
        Self { limits, by_council: HashMap::new(), watching: HashMap::new(), count: 0 }
    }

    /// Registers a connection, which may watch from now on.
    pub(super) fn joined(&mut self, id: W::Id) {
        self.watching.entry(id).or_default();
    }

    /// Adds a watcher to a council. Beyond the limits the connection is not added, and must poll instead.
    pub(super) fn add(&mut self, council: CouncilId, watcher: W) {
        // The connection may have closed before the writer processed its request.
        let Some(watched) = self.watching.get_mut(&watcher.id()) else { return };
        let watchers = self.by_council.get(&council).map(Vec::as_slice).unwrap_or_default();
        let is_known = watchers.iter().any(|known| known.id() == watcher.id());
        if !is_known && watchers.len() < self.limits.watchers && watched.len() < self.limits.watched {
            watched.push(council);
            self.by_council.entry(council).or_default().push(watcher);
            self.count += 1;
            metrics::watched(self.count);
        }
    }

    /// Removes a closed connection.
    pub(super) fn remove(&mut self, id: W::Id) {
        for council in self.watching.remove(&id).unwrap_or_default() {
            if let Some(watchers) = self.by_council.get_mut(&council) {
                let before = watchers.len();
                watchers.retain(|watcher| watcher.id() != id);
                self.count -= before - watchers.len();
                if watchers.is_empty() {
                    self.by_council.remove(&council);
                }
            }
        }
        metrics::watched(self.count);
    }

    /// Pushes a message to all watchers of a council that may read it, except one. The others watch it no longer.
    pub(super) fn push(
        &mut self,
        council: CouncilId,
        but: Option<W::Id>,
        may_read: impl Fn(&PublicKey) -> bool,
        message: &[u8],
    ) {
        if let Some(watchers) = self.by_council.get_mut(&council) {
            for removed in watchers.extract_if(.., |watcher| !may_read(&watcher.key())) {
                self.count -= 1;
                if let Some(watched) = self.watching.get_mut(&removed.id()) {
                    watched.retain(|other| *other != council);
                }
            }
        }
        let watchers = self.by_council.get(&council).map(Vec::as_slice).unwrap_or_default();
        let others = watchers.iter().filter(|watcher| Some(watcher.id()) != but);
        let gone: Vec<_> = others.filter(|watcher| !watcher.push(message)).map(Watcher::id).collect();
        for id in gone {
            self.remove(id);
        }
    }

    pub(super) fn of(&self, council: CouncilId) -> usize {
        self.by_council.get(&council).map_or(0, Vec::len)
    }
}

#[cfg(test)]
mod tests;

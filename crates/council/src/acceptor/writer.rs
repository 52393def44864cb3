//! The single writer for all councils: answers all queued requests together, after one commit.
//!
//! A thread takes the requests that arrived while the disk was busy and passes them to the seats. It stores all
//! their records in one transaction, and only then sends the answers. It never waits for a batch to fill. Because
//! there is only one writer, two connections never race on a promise.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use holdoff_paxos::Held;
use tokio::sync::{mpsc, oneshot};

use super::figures::{Counting, Figures};
use super::index::{Councils, Index, Kept, Wish};
use super::seats::Seats;
use super::watchers::Watchers;
use super::{Limits, Push, Store, StoreError, Watcher};
use crate::{Answer, Ask, Asker, CouncilId, PublicKey, Refusal, Signature, Stored, Tell, To, Verifier};
use crate::{clock, metrics};

/// A handle to the writer. After the last clone is dropped, the writer answers the queued requests and ends.
#[derive(Debug)]
pub struct Writer<W: Watcher> {
    queue: mpsc::Sender<Errand<W>>,
    shared: Arc<Shared<W>>,
}

/// A view of the writer. Holding it does not keep the writer running.
#[derive(Debug)]
pub(super) struct Look<W: Watcher> {
    queue: mpsc::WeakSender<Errand<W>>,
    shared: Arc<Shared<W>>,
}

/// The error of an acceptor that has stopped, because its disk has failed or its writer has ended by a defect. It
/// answers no requests.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("this acceptor has stopped: {0}")]
pub struct Stopped(pub String);

#[derive(Debug)]
struct Shared<W: Watcher> {
    stopped: OnceLock<String>,
    watchers: Mutex<Watchers<W>>,
    counting: Mutex<Counting>,
    /// Limits the queries for the list of councils to one at a time, so that a vote waits for at most one of them.
    looking: tokio::sync::Mutex<()>,
    life: u64,
}

impl<W: Watcher> Shared<W> {
    fn watchers(&self) -> MutexGuard<'_, Watchers<W>> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counting(&self) -> MutexGuard<'_, Counting> {
        self.counting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stopped(&self) -> Stopped {
        let ended = || "its writer has ended".to_owned();
        Stopped(self.stopped.get().cloned().unwrap_or_else(ended))
    }
}

/// A job for the writer.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "almost all that waits are questions")]
enum Errand<W> {
    Answer(Question<W>),
    Show(Wish, oneshot::Sender<Councils>),
}

/// A request of a client.
#[derive(Debug)]
struct Question<W> {
    council: CouncilId,
    asker: Asker,
    ask: Ask,
    /// Whether the value of the request is signed. The connection's task checks this in advance, because it takes
    /// longer than the rest.
    is_signed: bool,
    from: Option<W>,
    reply: oneshot::Sender<Vec<Tell>>,
}

/// The destination of an answer.
#[derive(Debug)]
struct Way<W: Watcher> {
    council: CouncilId,
    kind: &'static str,
    from: Option<W::Id>,
    reply: oneshot::Sender<Vec<Tell>>,
}

type Batch = Held<Vec<(CouncilId, Stored)>, Vec<Answer>>;

impl<W: Watcher> Clone for Writer<W> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), shared: self.shared.clone() }
    }
}

impl<W: Watcher> Writer<W> {
    /// Starts the writer's thread. The caller can join the thread after it has dropped every clone of the writer.
    pub fn start(store: Store, limits: Limits) -> std::io::Result<(Self, thread::JoinHandle<()>)> {
        let (queue, waiting) = mpsc::channel(limits.queue.max(1));
        let watchers = Mutex::new(Watchers::new(limits));
        let shared = Arc::new(Shared {
            stopped: OnceLock::new(),
            watchers,
            counting: Mutex::new(Counting::new(clock::now())),
            looking: tokio::sync::Mutex::new(()),
            life: store.life(),
        });
        metrics::stopped(false);
        metrics::keeps(store.councils(), 0);
        let desk = Desk {
            limits,
            index: Index::new(store.all()),
            store,
            seats: Seats::new(limits),
            fresh: HashSet::new(),
            shared: shared.clone(),
            has_ended_well: false,
        };
        let thread = thread::Builder::new().name("acceptor".to_owned()).spawn(move || desk.run(waiting))?;
        Ok((Self { queue, shared }, thread))
    }

    /// Returns the incarnation of the store.
    pub fn life(&self) -> u64 {
        self.shared.life
    }

    /// Returns a view of the writer for operators.
    pub(super) fn look(&self) -> Look<W> {
        Look { queue: self.queue.downgrade(), shared: self.shared.clone() }
    }

    /// Counts a message that the acceptor refuses because it cannot be decoded.
    pub(super) fn refused(&self, reason: &'static str) {
        self.shared.counting().refused(reason);
        metrics::refused(reason);
    }

    /// Sends a request, and waits until the records on which the answer depends are on disk.
    ///
    /// If the queue is full, this function waits for a free entry. If the caller drops the future after the request
    /// was queued, the writer still processes the request, and discards the answer.
    pub async fn ask(
        &self,
        council: CouncilId,
        asker: Asker,
        ask: Ask,
        from: Option<W>,
        verifier: &(dyn Verifier + Sync),
    ) -> Result<Vec<Tell>, Stopped> {
        let is_signed = ask.is_signed(council, verifier);
        let (reply, answer) = oneshot::channel();
        let question = Question { council, asker, ask, is_signed, from, reply };
        self.queue.send(Errand::Answer(question)).await.map_err(|_| self.shared.stopped())?;
        answer.await.map_err(|_| self.shared.stopped())
    }

    /// Waits until the writer has stopped, which happens only after a disk failure or a defect of this program, and
    /// returns the reason.
    pub async fn ended(&self) -> Stopped {
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

impl<W: Watcher> Look<W> {
    pub(super) fn stopped(&self) -> Option<String> {
        self.shared.stopped.get().cloned()
    }

    pub(super) fn figures(&self) -> Figures {
        self.shared.counting().figures(clock::now())
    }

    pub(super) async fn councils(&self, wish: Wish) -> Result<Councils, Stopped> {
        let _alone = self.shared.looking.lock().await;
        let queue = self.queue.upgrade().ok_or_else(|| self.shared.stopped())?;
        let (reply, answer) = oneshot::channel();
        queue.send(Errand::Show(wish, reply)).await.map_err(|_| self.shared.stopped())?;
        drop(queue);
        answer.await.map_err(|_| self.shared.stopped())
    }
}

/// The state of the writer's thread.
struct Desk<W: Watcher> {
    limits: Limits,
    index: Index,
    store: Store,
    seats: Seats,
    /// Councils that this batch creates.
    fresh: HashSet<CouncilId>,
    shared: Arc<Shared<W>>,
    has_ended_well: bool,
}

impl<W: Watcher> Desk<W> {
    fn run(mut self, mut waiting: mpsc::Receiver<Errand<W>>) {
        let mut batch = Vec::with_capacity(self.limits.batch);
        while waiting.blocking_recv_many(&mut batch, self.limits.batch.max(1)) > 0 {
            let (mut questions, mut looks) = (Vec::with_capacity(batch.len()), Vec::new());
            for errand in batch.drain(..) {
                match errand {
                    Errand::Answer(question) => questions.push(question),
                    Errand::Show(wish, reply) => looks.push((wish, reply)),
                }
            }
            if let Err(error) = self.serve(questions) {
                self.stop(error.to_string());
                return;
            }
            // After the commit, so that the reply shows only data that is on disk.
            for (wish, reply) in looks {
                drop(reply.send(self.index.page(&wish, clock::now(), self.seats.memory())));
            }
        }
        self.has_ended_well = true;
    }

    /// Answers a batch of requests. After an error, no answer of the batch was sent, and no further answer may be
    /// sent.
    fn serve(&mut self, batch: Vec<Question<W>>) -> Result<(), StoreError> {
        if batch.is_empty() {
            return Ok(());
        }
        let (mut ways, mut held) = (Vec::new(), Vec::new());
        for question in batch {
            let (way, answers) = self.answer(question)?;
            ways.push(way);
            held.push(answers);
        }
        metrics::answered(held.len());
        self.shared.counting().answered(clock::now(), held.len());
        let (store, shared) = (&mut self.store, &self.shared);
        let answers = Held::release_all(held, |records: Vec<_>| {
            let begin = clock::now();
            let written = store.write(records.into_iter().flatten());
            let end = clock::now();
            metrics::committed(end.saturating_sub(begin));
            shared.counting().committed(end, end.saturating_sub(begin));
            written
        })?;
        for (way, answers) in ways.into_iter().zip(answers) {
            self.tell(way, answers);
        }
        self.fresh.clear();
        self.seats.make_room();
        metrics::keeps(self.store.councils(), self.seats.memory());
        Ok(())
    }

    fn answer(&mut self, question: Question<W>) -> Result<(Way<W>, Batch), StoreError> {
        let Question { council, asker, ask, is_signed, from, reply } = question;
        let way = Way { council, kind: ask.name(), from: from.as_ref().map(Watcher::id), reply };
        if !ask.only_reads() && !self.has_room_for(council) {
            let refused = Tell::Refused { slot: None, why: Refusal::TooManyCouncils };
            return Ok((way, Held::free(vec![Answer { to: To::Asker, tell: refused }])));
        }
        if let (Ask::Fetch { .. }, Some(watcher)) = (&ask, from) {
            self.shared.watchers().add(council, watcher);
        }
        let known = Known { is_signed };
        let (held, kept) = self.seats.using(council, &self.store, |seat| {
            let held = seat.answer(&asker, ask, &known);
            (held, Kept::of(seat))
        })?;
        if held.record().is_some() && !self.store.knows(&council) {
            self.fresh.insert(council);
        }
        if self.is_known(&council) {
            self.index.note(council, kept, clock::now());
        }
        let of_council = |records: Vec<_>| records.into_iter().map(|record| (council, record)).collect();
        Ok((way, held.map_record(of_council)))
    }

    fn has_room_for(&self, council: CouncilId) -> bool {
        self.is_known(&council) || self.store.councils() + self.fresh.len() < self.limits.councils
    }

    /// Returns whether the council has data on disk, or will have with this batch.
    fn is_known(&self, council: &CouncilId) -> bool {
        self.store.knows(council) || self.fresh.contains(council)
    }

    fn tell(&self, way: Way<W>, answers: Vec<Answer>) {
        let Way { council, kind, from, reply } = way;
        let mut told = Vec::new();
        for Answer { to, tell } in answers {
            match to {
                To::Asker => told.push(tell),
                To::Watchers => self.push(council, from, tell),
            }
        }
        let refusal = told.iter().find_map(|tell| match tell {
            Tell::Refused { why, .. } => Some(why.name()),
            _ => None,
        });
        metrics::asked(kind, refusal.is_some());
        refusal.into_iter().for_each(metrics::refused);
        let mut counting = self.shared.counting();
        counting.asked(kind);
        if let Some(reason) = refusal {
            counting.refused(reason);
        }
        drop(counting);
        // The client may have disconnected; its request is processed all the same.
        drop(reply.send(told));
    }

    fn push(&self, council: CouncilId, but: Option<W::Id>, tell: Tell) {
        let mut watchers = self.shared.watchers();
        if watchers.of(council) == 0 {
            return;
        }
        if let Ok(message) = postcard::to_allocvec(&Push { life: self.shared.life, council, tell }) {
            watchers.push(council, but, &message);
        }
    }

    fn stop(&self, why: String) {
        tracing::error!(why, "the acceptor stops: it answers nobody until it is started again");
        metrics::stopped(true);
        drop(self.shared.stopped.set(why));
    }
}

/// Marks the writer as stopped, even if the thread ends unexpectedly.
impl<W: Watcher> Drop for Desk<W> {
    fn drop(&mut self) {
        if !self.has_ended_well && self.shared.stopped.get().is_none() {
            self.stop("its writer has ended by a defect of this program".to_owned());
        }
    }
}

/// A verifier with the result of a check that the connection's task has already made.
struct Known {
    is_signed: bool,
}

impl Verifier for Known {
    fn is_signed(&self, _: &PublicKey, _: &[u8], _: &[u8], _: &Signature) -> bool {
        self.is_signed
    }
}

#[cfg(test)]
mod tests;

//! A connection as seen by its callers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::{Semaphore, oneshot};

use crate::clock::{self, Instant};
use crate::queue::{NotTaken, Sender};
use crate::wire::{Frame, Payload, Terms};
use crate::{Fault, Limits, metrics};

/// The answer to a call.
pub(super) type Answer = Result<Bytes, Fault>;

/// The reason why a call got no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unanswered {
    /// The connection ended before the request was sent.
    NotSent,
    /// The connection was lost after the request was sent.
    Lost,
    /// The deadline passed.
    Deadline { sent: bool },
    /// The message is larger than the other side accepts.
    TooLarge { size: usize, limit: usize },
}

/// An open connection, or one that has ended.
#[derive(Debug)]
pub(crate) struct Live {
    outbox: Sender<Bytes>,
    places: Semaphore,
    all_places: u32,
    calls: Mutex<Calls>,
    next_id: AtomicU64,
    max_payload: usize,
}

/// The calls that wait for a reply, until the connection ends.
#[derive(Debug, Default)]
struct Calls {
    waiting: HashMap<u64, oneshot::Sender<Answer>>,
    over: Option<String>,
}

impl Live {
    pub(super) fn new(outbox: Sender<Bytes>, limits: &Limits, theirs: Terms) -> Self {
        let all_places = u32::try_from(limits.max_in_flight).unwrap_or(u32::MAX);
        Self {
            outbox,
            places: Semaphore::new(limits.max_in_flight),
            all_places,
            calls: Mutex::default(),
            next_id: AtomicU64::new(0),
            max_payload: theirs.max_payload(),
        }
    }

    /// Sends a request and waits for its reply. If the limit of calls in flight is reached, the call waits for a permit
    /// first.
    pub(super) async fn call(&self, deadline: Instant, request: &Bytes) -> Result<Answer, Unanswered> {
        self.check_size(request)?;
        let sent = AtomicBool::new(false);
        let answered = async {
            let _place = self.places.acquire().await.map_err(|_| Unanswered::NotSent)?;
            // If the permit came after the deadline, the request is not sent: its caller has given up.
            if clock::until(deadline).is_zero() {
                return Err(Unanswered::Deadline { sent: false });
            }
            let (waiting, answer) = self.wait().ok_or(Unanswered::NotSent)?;
            let frame = Frame::Call { id: waiting.id, payload: Payload(request) }.to_bytes();
            let bytes = frame.len();
            self.outbox.send(frame, bytes).await.map_err(|_| Unanswered::NotSent)?;
            sent.store(true, Ordering::Relaxed);
            answer.await.map_err(|_| Unanswered::Lost)
        };
        let late = |_| Err(Unanswered::Deadline { sent: sent.load(Ordering::Relaxed) });
        clock::by(deadline, answered).await.unwrap_or_else(late)
    }

    /// Queues a message without a reply; waits for room in the queue.
    pub(super) async fn tell(&self, message: &Bytes) -> Result<(), Unanswered> {
        self.check_size(message)?;
        // A connection that is closing accepts no further messages.
        if self.places.is_closed() {
            return Err(Unanswered::NotSent);
        }
        let frame = Frame::Tell { payload: Payload(message) }.to_bytes();
        let bytes = frame.len();
        self.outbox.send(frame, bytes).await.map_err(|_: NotTaken| Unanswered::NotSent)
    }

    /// Delivers a reply to its call. A reply whose call is unknown or abandoned is ignored and counted.
    pub(super) fn answered(&self, id: u64, answer: Answer) {
        let waiting = self.calls().waiting.remove(&id);
        if waiting.is_none_or(|waiting| waiting.send(answer).is_err()) {
            metrics::reply_ignored();
        }
    }

    /// Accepts no further calls, and waits until the calls in flight are answered or abandoned.
    pub(super) async fn drained(&self) {
        // The semaphore is fair: a later call queues behind this acquisition, and then finds the semaphore closed.
        drop(self.places.acquire_many(self.all_places).await);
        self.places.close();
    }

    /// Ends the connection: every waiting call fails.
    pub(super) fn over(&self, why: String) {
        self.places.close();
        let mut calls = self.calls();
        calls.over = Some(why);
        calls.waiting.clear();
    }

    pub(super) fn why_lost(&self) -> String {
        self.calls().over.clone().unwrap_or_default()
    }

    fn check_size(&self, message: &Bytes) -> Result<(), Unanswered> {
        let (size, limit) = (message.len(), self.max_payload);
        if size > limit { Err(Unanswered::TooLarge { size, limit }) } else { Ok(()) }
    }

    fn wait(&self) -> Option<(Waiting<'_>, oneshot::Receiver<Answer>)> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        let mut calls = self.calls();
        if calls.over.is_some() {
            return None;
        }
        calls.waiting.insert(id, sender);
        Some((Waiting { live: self, id }, receiver))
    }

    /// Every critical section leaves consistent data, so a poisoned lock is safe to use.
    fn calls(&self) -> std::sync::MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that waits for its reply. Dropping it removes the call from the table.
struct Waiting<'a> {
    live: &'a Live,
    id: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.live.calls().waiting.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::queue::queue;

    #[tokio::test(start_paused = true)]
    async fn whoever_gives_up_leaves_nothing_behind() {
        let limits = Limits { max_in_flight: 2, ..Limits::default() };
        let (sender, _receiver) = queue(100, 1 << 20);
        let live = Live::new(sender, &limits, limits.terms());
        let (call, second) = (Bytes::from_static(b"x"), Duration::from_secs(1));
        for _ in 0..3 {
            // Two of the four calls reach the deadline while they wait for a permit, two after they were sent. Then a
            // caller drops its call.
            let calls = (0..4).map(|_| live.call(clock::after(second), &call));
            let mut outcomes = futures_util::future::join_all(calls).await;
            outcomes.sort_by_key(|outcome| *outcome == Err(Unanswered::Deadline { sent: true }));
            let late = |sent| Err(Unanswered::Deadline { sent });
            assert_eq!(outcomes, [late(false), late(false), late(true), late(true)]);
            drop(clock::within(second / 2, live.call(clock::after(second), &call)).await);
            assert_eq!((live.calls().waiting.len(), live.places.available_permits()), (0, 2));
        }
    }

    #[tokio::test]
    async fn when_it_is_over_everybody_is_told_and_nothing_goes_out() {
        let limits = Limits::default();
        let (sender, mut receiver) = queue(100, 1 << 20);
        let live = Live::new(sender, &limits, limits.terms());
        let (call, deadline) = (Bytes::from_static(b"x"), clock::after(Duration::from_secs(60)));
        let over = async {
            receiver.recv().await.unwrap();
            live.over("the cable was cut".to_owned());
        };
        let (outcome, ()) = tokio::join!(live.call(deadline, &call), over);
        assert_eq!(outcome, Err(Unanswered::Lost));
        assert_eq!(live.why_lost(), "the cable was cut");
        assert_eq!(live.call(deadline, &call).await, Err(Unanswered::NotSent));
        assert_eq!(live.tell(&call).await, Err(Unanswered::NotSent));
        assert_eq!(receiver.try_recv(), None);
    }
}

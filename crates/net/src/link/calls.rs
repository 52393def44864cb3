//! A connection as seen by its callers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};

use crate::clock::{self, Instant};
use crate::connection::ConnectionEnd;
use crate::queue::{QueueError, Sender};
use crate::wire::{AnnouncedLimits, Frame, Payload};
use crate::{CloseReason, ConnectionLimits, HandlerError, metrics};

/// The answer to a call.
pub(super) type CallResult = Result<Bytes, HandlerError>;

/// The reason why a call got no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CallError {
    /// The connection ended before the request was sent.
    NotSent,
    /// The connection was lost after the request was sent.
    Lost,
    /// The deadline passed.
    Deadline { is_sent: bool },
    /// The message is larger than the other side accepts.
    TooLarge { size: usize, limit: usize },
}

/// An open connection, or one that has ended.
#[derive(Debug)]
pub(crate) struct Connection {
    outbox: Sender<Bytes>,
    permits: Semaphore,
    max_permits: u32,
    calls: Mutex<PendingCalls>,
    next_id: AtomicU64,
    max_payload: usize,
    role_version: u16,
}

/// The calls that wait for a reply, until the connection ends.
#[derive(Debug, Default)]
struct PendingCalls {
    waiting: HashMap<u64, oneshot::Sender<CallResult>>,
    ended: Option<Arc<ConnectionEnd>>,
}

impl Connection {
    pub(super) fn new(
        outbox: Sender<Bytes>,
        limits: &ConnectionLimits,
        theirs: AnnouncedLimits,
        role_version: u16,
    ) -> Self {
        let max_permits = u32::try_from(limits.max_in_flight).unwrap_or(u32::MAX);
        Self {
            outbox,
            permits: Semaphore::new(limits.max_in_flight),
            max_permits,
            calls: Mutex::default(),
            next_id: AtomicU64::new(0),
            max_payload: theirs.max_payload(),
            role_version,
        }
    }

    pub(super) fn role_version(&self) -> u16 {
        self.role_version
    }

    /// Sends a request and waits for its reply. If the limit of calls in flight is reached, the call waits for a permit
    /// first.
    pub(super) async fn call(&self, deadline: Instant, request: &Bytes) -> Result<CallResult, CallError> {
        self.check_size(request)?;
        let sent = AtomicBool::new(false);
        let answered = async {
            let _permit = self.permits.acquire().await.map_err(|_| CallError::NotSent)?;
            // If the permit came after the deadline, the request is not sent: its caller has given up.
            if clock::until(deadline).is_zero() {
                return Err(CallError::Deadline { is_sent: false });
            }
            let (waiting, answer) = self.wait().ok_or(CallError::NotSent)?;
            let frame = Frame::Call { id: waiting.id, payload: Payload(request) }.to_bytes();
            let bytes = frame.len();
            self.outbox.send(frame, bytes).await.map_err(|_| CallError::NotSent)?;
            sent.store(true, Ordering::Relaxed);
            answer.await.map_err(|_| CallError::Lost)
        };
        let late = |_| Err(CallError::Deadline { is_sent: sent.load(Ordering::Relaxed) });
        clock::by(deadline, answered).await.unwrap_or_else(late)
    }

    /// Queues a message without a reply; waits for room in the queue.
    pub(super) async fn send(&self, message: &Bytes) -> Result<(), CallError> {
        self.check_size(message)?;
        // A connection that is closing accepts no further messages.
        if self.permits.is_closed() {
            return Err(CallError::NotSent);
        }
        let frame = Frame::Message { payload: Payload(message) }.to_bytes();
        let bytes = frame.len();
        self.outbox.send(frame, bytes).await.map_err(|_: QueueError| CallError::NotSent)
    }

    /// Delivers a reply to its call. A reply whose call is unknown or abandoned is ignored and counted.
    pub(super) fn complete(&self, id: u64, answer: CallResult) {
        let waiting = self.calls.lock().waiting.remove(&id);
        if waiting.is_none_or(|waiting| waiting.send(answer).is_err()) {
            metrics::reply_ignored();
        }
    }

    /// Accepts no further calls, and waits until the calls in flight are answered or abandoned.
    pub(super) async fn drained(&self) {
        // The semaphore is fair: a later call queues behind this acquisition, and then finds the semaphore closed.
        drop(self.permits.acquire_many(self.max_permits).await);
        self.permits.close();
    }

    /// Ends the connection: every waiting call fails.
    pub(super) fn close(&self, why: Arc<ConnectionEnd>) {
        self.permits.close();
        let mut calls = self.calls.lock();
        calls.ended = Some(why);
        calls.waiting.clear();
    }

    /// Returns the reason why the connection has ended. Without one, the task of the link was dropped.
    pub(super) fn why_lost(&self) -> Arc<ConnectionEnd> {
        let dropped = || Arc::new(ConnectionEnd::ClosedLocally(CloseReason::Disconnected));
        self.calls.lock().ended.clone().unwrap_or_else(dropped)
    }

    fn check_size(&self, message: &Bytes) -> Result<(), CallError> {
        let (size, limit) = (message.len(), self.max_payload);
        if size > limit { Err(CallError::TooLarge { size, limit }) } else { Ok(()) }
    }

    fn wait(&self) -> Option<(PendingCall<'_>, oneshot::Receiver<CallResult>)> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        let mut calls = self.calls.lock();
        if calls.ended.is_some() {
            return None;
        }
        calls.waiting.insert(id, sender);
        Some((PendingCall { connection: self, id }, receiver))
    }
}

/// A call that waits for its reply. Dropping it removes the call from the table.
struct PendingCall<'a> {
    connection: &'a Connection,
    id: u64,
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        self.connection.calls.lock().waiting.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::queue::queue;

    #[tokio::test(start_paused = true)]
    async fn an_abandoned_call_releases_its_permit_and_its_entry() {
        let limits = ConnectionLimits { max_in_flight: 2, ..ConnectionLimits::default() };
        let (sender, _receiver) = queue(100, 1 << 20);
        let connection = Connection::new(sender, &limits, limits.terms(), 1);
        let (call, second) = (Bytes::from_static(b"x"), Duration::from_secs(1));
        for _ in 0..3 {
            // Two of the four calls reach the deadline while they wait for a permit, two after they were sent. Then a
            // caller drops its call.
            let calls = (0..4).map(|_| connection.call(clock::after(second), &call));
            let mut outcomes = futures_util::future::join_all(calls).await;
            outcomes.sort_by_key(|outcome| *outcome == Err(CallError::Deadline { is_sent: true }));
            let late = |is_sent| Err(CallError::Deadline { is_sent });
            assert_eq!(outcomes, [late(false), late(false), late(true), late(true)]);
            drop(clock::within(second / 2, connection.call(clock::after(second), &call)).await);
            assert_eq!(
                (connection.calls.lock().waiting.len(), connection.permits.available_permits()),
                (0, 2)
            );
        }
    }

    #[tokio::test]
    async fn closing_a_connection_fails_every_waiting_call() {
        let limits = ConnectionLimits::default();
        let (sender, mut receiver) = queue(100, 1 << 20);
        let connection = Connection::new(sender, &limits, limits.terms(), 1);
        let (call, deadline) = (Bytes::from_static(b"x"), clock::after(Duration::from_secs(60)));
        let over = async {
            receiver.recv().await.unwrap();
            connection.close(Arc::new(ConnectionEnd::WriteTimeout(Duration::from_secs(3))));
        };
        let (outcome, ()) = tokio::join!(connection.call(deadline, &call), over);
        assert_eq!(outcome, Err(CallError::Lost));
        assert_eq!(connection.why_lost().to_string(), "the peer read nothing for 3s");
        assert_eq!(connection.call(deadline, &call).await, Err(CallError::NotSent));
        assert_eq!(connection.send(&call).await, Err(CallError::NotSent));
        assert_eq!(receiver.try_recv(), None);
    }
}

//! Limit on connections, and the eviction of idle ones.
//!
//! An idle connection takes a permit that another client may need. When all permits are taken, the daemon closes the
//! connection that has been idle for longest. It does not close a connection while it serves a request on it.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// The maximum number of connections, if the limit on open files permits it.
const MOST_CONNECTIONS: u64 = 4096;
/// The share of the open files that connections may use. Work needs some as well.
const SHARE: (u64, u64) = (3, 4);
/// The interval between searches for an idle connection while all connections are busy.
const BREATHER: Duration = Duration::from_millis(20);

/// The limit on connections.
#[derive(Debug)]
pub(crate) struct Crowd {
    places: Arc<Semaphore>,
    idle: Mutex<Idle>,
}

/// The idle connections, the longest idle first.
#[derive(Debug, Default)]
struct Idle {
    next: u64,
    waiting: BTreeMap<u64, CancellationToken>,
}

/// A connection's permit.
#[derive(Debug)]
pub(crate) struct Seat {
    crowd: Arc<Crowd>,
    /// Its number among the idle connections; `None` while a request is being served.
    number: Mutex<Option<u64>>,
    rested: Notify,
    leave: CancellationToken,
    _place: OwnedSemaphorePermit,
}

impl Crowd {
    pub(crate) fn new() -> Arc<Self> {
        let most = usize::try_from(most_connections()).unwrap_or(usize::MAX);
        Arc::new(Self { places: Arc::new(Semaphore::new(most)), idle: Mutex::default() })
    }

    /// Acquires a permit. If there is none, closes the connection that has been idle for longest.
    pub(crate) async fn seat(self: &Arc<Self>) -> Option<Arc<Seat>> {
        let place = loop {
            if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
                break place;
            }
            self.close_longest_idle();
            let waiting = tokio::time::timeout(BREATHER, Arc::clone(&self.places).acquire_owned());
            if let Ok(place) = waiting.await {
                break place.ok()?;
            }
        };
        let (crowd, leave) = (Arc::clone(self), CancellationToken::new());
        let seat =
            Arc::new(Seat { crowd, number: Mutex::default(), rested: Notify::new(), leave, _place: place });
        seat.rest();
        Some(seat)
    }

    /// Closes the connection that has been idle for longest.
    pub(crate) fn close_longest_idle(&self) {
        if let Some((_, leave)) = lock(&self.idle).waiting.pop_first() {
            leave.cancel();
        }
    }
}

impl Seat {
    /// Marks the connection as idle.
    fn rest(&self) {
        let mut idle = lock(&self.crowd.idle);
        idle.next += 1;
        let number = idle.next;
        idle.waiting.insert(number, self.leave.clone());
        *lock(&self.number) = Some(number);
        self.rested.notify_one();
    }

    /// Marks the connection as busy until the returned guard is dropped.
    pub(crate) fn attend(self: &Arc<Self>) -> Attended {
        self.rise();
        Attended(Arc::clone(self))
    }

    fn rise(&self) {
        let number = lock(&self.number).take();
        if let Some(number) = number {
            lock(&self.crowd.idle).waiting.remove(&number);
        }
    }

    /// Completes when the connection must be closed; if a request is being served by then, after the response has been
    /// sent. Await it in the task that serves the connection.
    pub(crate) async fn has_to_leave(&self) {
        self.leave.cancelled().await;
        while lock(&self.number).is_none() {
            self.rested.notified().await;
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.rise();
    }
}

/// A response that is being produced or sent.
#[derive(Debug)]
pub(crate) struct Attended(Arc<Seat>);

impl Attended {
    /// Wraps a body so that the connection is busy until the last byte has been sent.
    pub(crate) fn until_sent(self, body: Body) -> Body {
        Body::new(Sending { body, _attended: self })
    }
}

impl Drop for Attended {
    fn drop(&mut self) {
        self.0.rest();
    }
}

struct Sending {
    body: Body,
    _attended: Attended,
}

impl HttpBody for Sending {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(unix)]
fn most_connections() -> u64 {
    use rustix::process::{Resource, getrlimit};
    let (part, whole) = SHARE;
    let open_files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    (open_files / whole * part).clamp(1, MOST_CONNECTIONS)
}

#[cfg(not(unix))]
fn most_connections() -> u64 {
    MOST_CONNECTIONS
}

//! Who is connected, and who has to leave when there is no room.
//!
//! A connection that asks nothing costs a place that somebody else may want. When all places are taken, the one that has
//! been idle for longest is closed; one that is being answered is left alone.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// The most connections at once, if the system has room for so many.
const MOST_CONNECTIONS: u64 = 4096;
/// The share of the files that may be open: work needs some as well.
const SHARE: (u64, u64) = (3, 4);
/// How often is looked for somebody to close, when everybody is being answered.
const BREATHER: Duration = Duration::from_millis(20);

/// Who is connected.
#[derive(Debug)]
pub(crate) struct Crowd {
    places: Arc<Semaphore>,
    idle: Mutex<Idle>,
}

/// Those who ask nothing, the longest idle first.
#[derive(Debug, Default)]
struct Idle {
    next: u64,
    waiting: BTreeMap<u64, CancellationToken>,
}

/// A connection's place.
#[derive(Debug)]
pub(crate) struct Seat {
    crowd: Arc<Crowd>,
    /// Its number among the idle; nothing while it is being answered.
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

    /// A place; if there is none, the longest idle connection is closed.
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

    /// Makes room by closing the connection that has been idle for longest.
    pub(crate) fn close_longest_idle(&self) {
        if let Some((_, leave)) = lock(&self.idle).waiting.pop_first() {
            leave.cancel();
        }
    }
}

impl Seat {
    /// It asks nothing.
    fn rest(&self) {
        let mut idle = lock(&self.crowd.idle);
        idle.next += 1;
        let number = idle.next;
        idle.waiting.insert(number, self.leave.clone());
        *lock(&self.number) = Some(number);
        self.rested.notify_one();
    }

    /// It is being answered, until the answer is dropped.
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

    /// Ends when it has to leave; if it is being answered by then, not before that is over. To be waited for in the
    /// task that answers.
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

/// An answer that is on its way.
#[derive(Debug)]
pub(crate) struct Attended(Arc<Seat>);

impl Attended {
    /// The same answer, which is on its way until its last byte is.
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

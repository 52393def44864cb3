//! Limit on connections, and the eviction of idle ones.
//!
//! An idle connection takes a permit that another client may need. When all permits are taken, the daemon closes the
//! connection that has been idle for longest. A connection also counts as idle while the daemon waits for the body of
//! its request; from then on the daemon does not close it until the response has been sent.
//!
//! A few permits are reserved: a connection that gets one serves only the probes `/healthz` and `/readyz`, which
//! therefore answer however many connections are busy.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, Incoming, SizeHint};
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// The maximum number of connections, if the limit on open files permits it.
const MAX_CONNECTIONS: u64 = 4096;
/// The number of further connections, which serve probes only.
const RESERVED: usize = 16;
/// The share of the open files that connections may use. Work needs some as well.
const SHARE: (u64, u64) = (3, 4);
/// How long a new connection waits for a permit of one kind before it tries the other.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// The limit on connections.
#[derive(Debug)]
pub(crate) struct ConnectionLimit {
    usual: Pool,
    reserved: Pool,
}

/// Permits of one kind.
#[derive(Debug)]
struct Pool {
    permits: Arc<Semaphore>,
    idle: Mutex<IdleConnections>,
}

/// The idle connections, the longest idle first.
#[derive(Debug, Default)]
struct IdleConnections {
    next: u64,
    waiting: BTreeMap<u64, CancellationToken>,
}

/// A connection's permit.
#[derive(Debug)]
pub(crate) struct Permit {
    limit: Arc<ConnectionLimit>,
    is_reserved: bool,
    /// Its number among the idle connections; `None` while a request is being served.
    number: Mutex<Option<u64>>,
    became_idle: Notify,
    evict: CancellationToken,
    _slot: OwnedSemaphorePermit,
}

impl ConnectionLimit {
    pub(crate) fn new() -> Arc<Self> {
        let max = usize::try_from(max_connections()).unwrap_or(usize::MAX);
        Arc::new(Self { usual: Pool::new(max), reserved: Pool::new(RESERVED) })
    }

    /// Acquires a permit. If there is none, closes the connection that has been idle for longest; if all connections are
    /// busy, the permit is a reserved one.
    pub(crate) async fn acquire(self: &Arc<Self>) -> Arc<Permit> {
        let mut is_reserved = false;
        let slot = loop {
            if let Some(slot) = self.pool(is_reserved).acquire().await {
                break slot;
            }
            is_reserved = !is_reserved;
        };
        let permit = Arc::new(Permit {
            limit: Arc::clone(self),
            is_reserved,
            number: Mutex::default(),
            became_idle: Notify::new(),
            evict: CancellationToken::new(),
            _slot: slot,
        });
        permit.mark_idle();
        permit
    }

    /// Closes the connection that has been idle for longest.
    pub(crate) fn close_longest_idle(&self) {
        self.usual.close_longest_idle();
    }

    const fn pool(&self, is_reserved: bool) -> &Pool {
        if is_reserved { &self.reserved } else { &self.usual }
    }
}

impl Pool {
    fn new(permits: usize) -> Self {
        Self { permits: Arc::new(Semaphore::new(permits)), idle: Mutex::default() }
    }

    async fn acquire(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            return Some(permit);
        }
        self.close_longest_idle();
        let waiting = Arc::clone(&self.permits).acquire_owned();
        tokio::time::timeout(RETRY_INTERVAL, waiting).await.ok()?.ok()
    }

    fn close_longest_idle(&self) {
        if let Some((_, evict)) = self.idle.lock().waiting.pop_first() {
            evict.cancel();
        }
    }
}

impl Permit {
    /// Returns whether the connection serves probes only.
    pub(crate) const fn is_reserved(&self) -> bool {
        self.is_reserved
    }

    fn idle(&self) -> &Mutex<IdleConnections> {
        &self.limit.pool(self.is_reserved).idle
    }

    /// Marks the connection as idle from now on.
    fn mark_idle(&self) {
        self.mark_busy();
        let mut idle = self.idle().lock();
        idle.next += 1;
        let number = idle.next;
        idle.waiting.insert(number, self.evict.clone());
        *self.number.lock() = Some(number);
        self.became_idle.notify_one();
    }

    fn mark_busy(&self) {
        let number = self.number.lock().take();
        if let Some(number) = number {
            self.idle().lock().waiting.remove(&number);
        }
    }

    /// Begins a request. The connection is busy from the end of the request's body until the guard is dropped.
    pub(crate) fn start_request(self: &Arc<Self>, body: Incoming) -> (BusyGuard, Body) {
        let request = Arc::new(ActiveRequest(Arc::clone(self)));
        let body = if body.is_end_stream() {
            self.mark_busy();
            Body::empty()
        } else {
            Body::new(ReceivedBody { body, request: Arc::clone(&request) })
        };
        (BusyGuard { _request: request }, body)
    }

    /// Completes when the connection must be closed; if a request is being served by then, after the response has been
    /// sent. Await it in the task that serves the connection.
    pub(crate) async fn evicted(&self) {
        self.evict.cancelled().await;
        while self.number.lock().is_none() {
            self.became_idle.notified().await;
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.mark_busy();
    }
}

/// A request that is being received or answered. After it the connection is idle.
#[derive(Debug)]
struct ActiveRequest(Arc<Permit>);

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.mark_idle();
    }
}

/// The body of a request. The connection counts as idle until the body has arrived or the handler has dropped it.
struct ReceivedBody {
    body: Incoming,
    request: Arc<ActiveRequest>,
}

impl HttpBody for ReceivedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let permit = &self.request.0;
        if matches!(frame, Some(Ok(_))) && !self.body.is_end_stream() {
            // A body that makes progress moves behind the other idle connections.
            permit.mark_idle();
        } else {
            permit.mark_busy();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for ReceivedBody {
    fn drop(&mut self) {
        self.request.0.mark_busy();
    }
}

/// A response that is being produced or sent.
#[derive(Debug)]
pub(crate) struct BusyGuard {
    _request: Arc<ActiveRequest>,
}

impl BusyGuard {
    /// Wraps a body so that the connection is busy until the last byte has been sent.
    pub(crate) fn until_sent(self, body: Body) -> Body {
        Body::new(BusyBody { body, _busy: self })
    }
}

struct BusyBody {
    body: Body,
    _busy: BusyGuard,
}

impl HttpBody for BusyBody {
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

#[cfg(unix)]
fn max_connections() -> u64 {
    use rustix::process::{Resource, getrlimit};
    let (part, whole) = SHARE;
    let open_files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    (open_files / whole * part).clamp(1, MAX_CONNECTIONS)
}

#[cfg(not(unix))]
fn max_connections() -> u64 {
    MAX_CONNECTIONS
}

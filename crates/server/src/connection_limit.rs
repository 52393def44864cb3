//! Limit on connections, and the eviction of idle ones.
//!
//! An idle connection takes a permit that another client may need. When all permits are taken, the daemon closes the
//! connection that has been idle for longest. It does not close a connection while it serves a request on it.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// The maximum number of connections, if the limit on open files permits it.
const MAX_CONNECTIONS: u64 = 4096;
/// The share of the open files that connections may use. Work needs some as well.
const SHARE: (u64, u64) = (3, 4);
/// The interval between searches for an idle connection while all connections are busy.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// The limit on connections.
#[derive(Debug)]
pub(crate) struct ConnectionLimit {
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
    /// Its number among the idle connections; `None` while a request is being served.
    number: Mutex<Option<u64>>,
    became_idle: Notify,
    evict: CancellationToken,
    _slot: OwnedSemaphorePermit,
}

impl ConnectionLimit {
    pub(crate) fn new() -> Arc<Self> {
        let max = usize::try_from(max_connections()).unwrap_or(usize::MAX);
        Arc::new(Self { permits: Arc::new(Semaphore::new(max)), idle: Mutex::default() })
    }

    /// Acquires a permit. If there is none, closes the connection that has been idle for longest.
    pub(crate) async fn acquire(self: &Arc<Self>) -> Option<Arc<Permit>> {
        let permit = loop {
            if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
                break permit;
            }
            self.close_longest_idle();
            let waiting = tokio::time::timeout(RETRY_INTERVAL, Arc::clone(&self.permits).acquire_owned());
            if let Ok(permit) = waiting.await {
                break permit.ok()?;
            }
        };
        let (limit, evict) = (Arc::clone(self), CancellationToken::new());
        let permit = Arc::new(Permit {
            limit,
            number: Mutex::default(),
            became_idle: Notify::new(),
            evict,
            _slot: permit,
        });
        permit.mark_idle();
        Some(permit)
    }

    /// Closes the connection that has been idle for longest.
    pub(crate) fn close_longest_idle(&self) {
        if let Some((_, evict)) = self.idle.lock().waiting.pop_first() {
            evict.cancel();
        }
    }
}

impl Permit {
    /// Marks the connection as idle.
    fn mark_idle(&self) {
        let mut idle = self.limit.idle.lock();
        idle.next += 1;
        let number = idle.next;
        idle.waiting.insert(number, self.evict.clone());
        *self.number.lock() = Some(number);
        self.became_idle.notify_one();
    }

    /// Marks the connection as busy until the returned guard is dropped.
    pub(crate) fn start_request(self: &Arc<Self>) -> BusyGuard {
        self.mark_busy();
        BusyGuard(Arc::clone(self))
    }

    fn mark_busy(&self) {
        let number = self.number.lock().take();
        if let Some(number) = number {
            self.limit.idle.lock().waiting.remove(&number);
        }
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

/// A response that is being produced or sent.
#[derive(Debug)]
pub(crate) struct BusyGuard(Arc<Permit>);

impl BusyGuard {
    /// Wraps a body so that the connection is busy until the last byte has been sent.
    pub(crate) fn until_sent(self, body: Body) -> Body {
        Body::new(BusyBody { body, _busy: self })
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.mark_idle();
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

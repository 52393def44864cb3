//! `GET /v1/events`: changes as server-sent events.
//!
//! One poll serves all listeners: it compares the current state with the previous one and sends the difference. Without
//! listeners there is no poll. An event says what to read again. It is not a log: a listener that missed events is sent
//! `reset`.

mod snapshot;
mod stream;

pub(crate) use stream::{HEARTBEAT, HEARTBEAT_COMMENT, TokenWatch, stream_response};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Serialize;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, broadcast, watch};

use crate::access::Caller;
use crate::app::App;
use crate::clock;
use crate::problem::{Kind, Problem, ProblemBody, jittered_retry_after};
use snapshot::Snapshot;

/// The maximum number of listeners.
const MAX_LISTENERS: usize = 256;
/// The number of events buffered for a slow listener. Beyond it, the listener is sent `reset`.
const BUFFER: usize = 256;
/// The shortest and the longest interval between polls.
const POLL_INTERVAL: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(1));
/// After a poll the loop sleeps this many times as long as the poll took, so that polls use little of the store's time.
const REST_FACTOR: u32 = 10;

/// The listeners, and the events that they are sent.
#[derive(Debug)]
pub(crate) struct Events {
    sender: broadcast::Sender<Arc<Event>>,
    permits: Arc<Semaphore>,
    /// Notified when a listener subscribes.
    subscribed: Notify,
    /// Whether the previous state is known, so that a poll finds changes. A listener subscribes while it borrows this
    /// value, so that the poll cannot discard the state at the same moment.
    is_primed: watch::Sender<bool>,
    count: AtomicU64,
}

/// The detail of the events that a listener is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EventDetail {
    /// The changes themselves.
    Full,
    /// Only the kind of each change, which any caller may know.
    KindsOnly,
}

/// A subscription.
struct Subscription {
    events: broadcast::Receiver<Arc<Event>>,
    is_primed: watch::Receiver<bool>,
    detail: EventDetail,
    token: TokenWatch,
}

/// A change.
#[derive(Debug)]
struct Event {
    id: u64,
    name: &'static str,
    /// JSON, on one line.
    data: String,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            sender: broadcast::Sender::new(BUFFER),
            permits: Arc::new(Semaphore::new(MAX_LISTENERS)),
            subscribed: Notify::new(),
            is_primed: watch::Sender::new(false),
            count: AtomicU64::new(0),
        }
    }
}

impl Events {
    /// Subscribes. The listener receives all changes after `is_primed` has become true.
    fn subscribe(&self) -> Subscription {
        let is_primed = self.is_primed.subscribe();
        let events = {
            let _primed = self.is_primed.borrow();
            self.sender.subscribe()
        };
        self.subscribed.notify_one();
        Subscription { events, is_primed, detail: EventDetail::Full, token: TokenWatch::default() }
    }

    /// Acquires a permit for one more listener to any stream.
    pub(crate) fn acquire_permit(&self) -> Result<OwnedSemaphorePermit, Problem> {
        Arc::clone(&self.permits).try_acquire_owned().map_err(|_| {
            let detail = format!("this daemon already has {MAX_LISTENERS} listeners");
            Problem::new(Kind::TooManyWaiters, detail).retry_after(jittered_retry_after())
        })
    }

    /// Returns whether there are no listeners. If so, marks the previous state as unknown.
    fn reset_if_idle(&self) -> bool {
        let mut is_alone = false;
        self.is_primed.send_if_modified(|is_primed| {
            is_alone = self.sender.receiver_count() == 0;
            is_alone && std::mem::replace(is_primed, false)
        });
        is_alone
    }

    /// Sends an event to all listeners.
    fn send<T: Serialize>(&self, name: &'static str, changed: &[T]) {
        if changed.is_empty() {
            return;
        }
        let id = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let data = serde_json::to_string(changed).unwrap_or_default();
        // There may be no listeners any more.
        let _ = self.sender.send(Arc::new(Event { id, name, data }));
    }
}

/// Streams changes as server-sent events of the types `steps`, `queues`, `locks`, `acceptor` and `ledger`, each with a
/// list of the changed items.
///
/// `ready` is the first event: later changes are reported. `reset` means that the client may have missed events.
#[utoipa::path(get, path = "/v1/events", tag = "events", security(("token" = ["read"])),
    params(("last-event-id" = Option<String>, Header, description = "The id of the last received event; browsers send it when they reconnect.")),
    responses(
        (status = 200, description = "Events, until one side closes the stream.", body = String,
            content_type = "text/event-stream"),
        (status = 429, description = "Too many listeners; retry after `Retry-After`.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub(crate) async fn listen(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    open_stream(&app, &caller, &headers, EventDetail::Full)
}

/// Starts the event stream of a listener, if there is a permit for it.
pub(crate) fn open_stream(
    app: &App,
    caller: &Caller,
    headers: &HeaderMap,
    detail: EventDetail,
) -> Result<Response, Problem> {
    let permit = app.events.acquire_permit()?;
    let is_reconnect = headers.contains_key("last-event-id");
    let token = TokenWatch::of(app, caller);
    let subscription = Subscription { detail, token, ..app.events.subscribe() };
    Ok(stream::open(subscription, permit, is_reconnect, app.stopping.clone()))
}

/// Polls for changes while there are listeners, until the daemon stops.
pub(crate) async fn watch(app: App) {
    let stopping = app.stopping.clone();
    stopping.run_until_cancelled(poll(&app)).await;
}

async fn poll(app: &App) {
    let events = &app.events;
    let mut wakes = app.work.wakes();
    let mut last: Option<Snapshot> = None;
    loop {
        if events.reset_if_idle() {
            last = None;
            events.subscribed.notified().await;
        }
        let since = clock::now();
        match Snapshot::read(app, last.as_ref()).await {
            Ok(now) => {
                let before = last.replace(now);
                if let (Some(before), Some(now)) = (before, &last) {
                    now.send_changes_since(&before, events);
                }
                events.is_primed.send_replace(true);
            }
            Err(why) => tracing::debug!(?why, "failed to poll for changes"),
        }
        let (shortest, longest) = POLL_INTERVAL;
        let rest = (clock::now().saturating_sub(since) * REST_FACTOR).max(shortest);
        tokio::time::sleep(rest).await;
        tokio::select! {
            () = wakes.next() => {}
            () = events.subscribed.notified() => {}
            () = tokio::time::sleep(longest.saturating_sub(rest)) => {}
        }
    }
}

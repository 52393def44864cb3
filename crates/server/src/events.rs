//! `GET /v1/events`: changes as server-sent events.
//!
//! One poll serves all listeners: it compares the current state with the previous one and sends the difference. Without
//! listeners there is no poll. An event says what to read again. It is not a log: a listener that missed events is sent
//! `reset`.

mod look;
mod stream;

pub(crate) use stream::{HEARTBEAT, STILL_HERE, Welcome, told};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Serialize;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, broadcast, watch};

use crate::access::Access;
use crate::app::App;
use crate::clock;
use crate::problem::{Kind, Problem, ProblemBody, spread};
use look::Seen;

/// The maximum number of listeners.
const MOST_LISTENERS: usize = 256;
/// The number of events buffered for a slow listener. Beyond it, the listener is sent `reset`.
const BUFFER: usize = 256;
/// The shortest and the longest interval between polls.
const PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(1));
/// After a poll the loop sleeps this many times as long as the poll took, so that polls use little of the store's time.
const SHARE: u32 = 10;

/// The listeners, and the events that they are sent.
#[derive(Debug)]
pub(crate) struct Events {
    sender: broadcast::Sender<Arc<Event>>,
    seats: Arc<Semaphore>,
    /// Notified when a listener subscribes.
    came: Notify,
    /// Whether the previous state is known, so that a poll finds changes. A listener subscribes while it borrows this
    /// value, so that the poll cannot discard the state at the same moment.
    knows: watch::Sender<bool>,
    count: AtomicU64,
}

/// The detail of the events that a listener is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Telling {
    /// The changes themselves.
    Everything,
    /// Only the kind of each change, which any caller may know.
    Names,
}

/// A subscription.
struct Listening {
    events: broadcast::Receiver<Arc<Event>>,
    knows: watch::Receiver<bool>,
    telling: Telling,
    welcome: Welcome,
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
            seats: Arc::new(Semaphore::new(MOST_LISTENERS)),
            came: Notify::new(),
            knows: watch::Sender::new(false),
            count: AtomicU64::new(0),
        }
    }
}

impl Events {
    /// Subscribes. The listener receives all changes after `knows` has become true.
    fn subscribe(&self) -> Listening {
        let knows = self.knows.subscribe();
        let events = {
            let _not_forgotten = self.knows.borrow();
            self.sender.subscribe()
        };
        self.came.notify_one();
        Listening { events, knows, telling: Telling::Everything, welcome: Welcome::default() }
    }

    /// Acquires a permit for one more listener to any stream.
    pub(crate) fn free_seat(&self) -> Result<OwnedSemaphorePermit, Problem> {
        Arc::clone(&self.seats).try_acquire_owned().map_err(|_| {
            let detail = format!("{MOST_LISTENERS} listen to this daemon already");
            Problem::new(Kind::TooManyWaiters, detail).retry_after(spread())
        })
    }

    /// Returns whether there are no listeners. If so, marks the previous state as unknown.
    fn forget(&self) -> bool {
        let mut is_alone = false;
        self.knows.send_if_modified(|knows| {
            is_alone = self.sender.receiver_count() == 0;
            is_alone && std::mem::replace(knows, false)
        });
        is_alone
    }

    /// Sends an event to all listeners.
    fn tell<T: Serialize>(&self, name: &'static str, changed: &[T]) {
        if changed.is_empty() {
            return;
        }
        let id = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let data = serde_json::to_string(changed).unwrap_or_default();
        // There may be no listeners any more.
        let _ = self.sender.send(Arc::new(Event { id, name, data }));
    }
}

/// What changes, as server-sent events: `steps`, `queues`, `locks`, `acceptor` and `ledger`, each with a list of what
/// changed.
///
/// `ready` comes first, when the changes that follow are told; `reset` means that some may have been missed.
#[utoipa::path(get, path = "/v1/events", tag = "events", security(("token" = ["read"])),
    params(("last-event-id" = Option<String>, Header, description = "Sent by browsers that come back.")),
    responses(
        (status = 200, description = "Events, until one side ends it.", body = String,
            content_type = "text/event-stream"),
        (status = 429, description = "Too many listen; come back after `Retry-After`.", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub(crate) async fn listen(
    State(app): State<App>,
    access: Access,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    seat(&app, &access, &headers, Telling::Everything)
}

/// Starts the event stream of a listener, if there is a permit for it.
pub(crate) fn seat(
    app: &App,
    access: &Access,
    headers: &HeaderMap,
    telling: Telling,
) -> Result<Response, Problem> {
    let seat = app.events.free_seat()?;
    let came_back = headers.contains_key("last-event-id");
    let welcome = Welcome::of(app, access);
    let listening = Listening { telling, welcome, ..app.events.subscribe() };
    Ok(stream::answer(listening, seat, came_back, app.stopping.clone()))
}

/// Polls for changes while there are listeners, until the daemon stops.
pub(crate) async fn watch(app: App) {
    let stopping = app.stopping.clone();
    stopping.run_until_cancelled(looking(&app)).await;
}

async fn looking(app: &App) {
    let events = &app.events;
    let mut wakes = app.work.wakes();
    let mut seen: Option<Seen> = None;
    loop {
        if events.forget() {
            seen = None;
            events.came.notified().await;
        }
        let since = clock::now();
        match Seen::look(app, seen.as_ref()).await {
            Ok(now) => {
                let before = seen.replace(now);
                if let (Some(before), Some(now)) = (before, &seen) {
                    now.tell_since(&before, events);
                }
                events.knows.send_replace(true);
            }
            Err(why) => tracing::debug!(?why, "no look at what changes"),
        }
        let (shortest, longest) = PAUSE;
        let rest = (clock::now().saturating_sub(since) * SHARE).max(shortest);
        tokio::time::sleep(rest).await;
        tokio::select! {
            () = wakes.next() => {}
            () = events.came.notified() => {}
            () = tokio::time::sleep(longest.saturating_sub(rest)) => {}
        }
    }
}

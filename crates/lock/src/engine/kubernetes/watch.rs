//! Notifications of released locks: one watch for all locks of the namespace, while there are subscribers.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use holdoff_retry::Backoff;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{WatchEvent, WatchParams};

use super::Inner;
use super::api::{RequestError, RequestResult};
use super::lease_object::{LeaseObject, SELECTOR};
use crate::engine::watch_backoff;
use crate::notify::Notification;
use crate::{Error, clock};

/// The minimum time that the watch continues without subscribers. The maximum is twice as long.
const LINGER: Duration = if cfg!(test) { Duration::from_millis(50) } else { Duration::from_secs(10) };
/// The duration of one watch request in seconds. The next request continues where it ended.
const WATCH_SECONDS: u32 = 240;

/// The reason why a watch ended.
enum WatchEnd {
    /// The server ended the request in time. The next one continues from the same version.
    InTime,
    /// The history since the version is no longer available.
    Gone,
    Failed(Error),
}

pub(super) async fn run(inner: Arc<Inner>) {
    let mut backoff = watch_backoff();
    let mut since = None;
    let mut lingering = tokio::time::interval(LINGER);
    lingering.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        {
            let watching = async {
                match watch_once(&inner, &mut since, &mut backoff).await {
                    WatchEnd::InTime => {}
                    WatchEnd::Gone => since = None,
                    WatchEnd::Failed(error) => {
                        tracing::debug!(%error, "stopped watching Leases; contenders poll until the next watch");
                        // Events may have been missed until the next watch starts.
                        since = None;
                    }
                }
                backoff.wait().await;
            };
            tokio::pin!(watching);
            let mut was_idle = false;
            loop {
                tokio::select! {
                    () = &mut watching => break,
                    _ = lingering.tick() => {
                        let is_idle = inner.subscribers.len() == 0;
                        if was_idle && is_idle && has_ended(&inner) {
                            return;
                        }
                        was_idle = is_idle;
                    }
                }
            }
        }
    }
}

/// Ends the watch if there are no subscribers. A subscriber is counted before it checks whether a watch runs.
fn has_ended(inner: &Inner) -> bool {
    let mut is_watching = inner.is_watching.lock();
    *is_watching = inner.subscribers.len() > 0;
    !*is_watching
}

async fn watch_once(inner: &Inner, since: &mut Option<String>, backoff: &mut Backoff) -> WatchEnd {
    match watch(inner, since, backoff).await {
        Ok(end) => end,
        Err(RequestError::Gone) => WatchEnd::Gone,
        Err(error) => WatchEnd::Failed(error.into()),
    }
}

async fn watch(inner: &Inner, since: &mut Option<String>, backoff: &mut Backoff) -> RequestResult<WatchEnd> {
    let leases = &inner.leases;
    let is_new = since.is_none();
    let version = match since {
        Some(version) => version,
        None => since.insert(leases.newest().await?),
    };
    let params = WatchParams::default().labels(SELECTOR).timeout(WATCH_SECONDS);
    let events = leases.call("watch", leases.api.watch(&params, version)).await?;
    if is_new {
        // A client that asked before this version was read may have missed an event. Later events are received.
        inner.subscribers.notify_all();
    }
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        let event = event.map_err(|error| leases.request_error("watch", error))?;
        if let WatchEvent::Error(status) = event {
            return Err(leases.request_error("watch", kube::Error::Api(status)));
        }
        backoff.reset();
        if let Some(newer) = handle_event(inner, event) {
            *since = Some(newer);
        }
    }
    Ok(WatchEnd::InTime)
}

/// Notifies the subscribers. Returns the version of the event.
fn handle_event(inner: &Inner, event: WatchEvent<Lease>) -> Option<String> {
    let (object, is_gone) = match event {
        WatchEvent::Added(lease) | WatchEvent::Modified(lease) => (LeaseObject(lease), false),
        WatchEvent::Deleted(lease) => (LeaseObject(lease), true),
        WatchEvent::Bookmark(bookmark) => return Some(bookmark.metadata.resource_version),
        WatchEvent::Error(_) => return None,
    };
    let digest = object.digest()?;
    if is_gone {
        inner.observed.lock().remove(&digest);
    }
    // The write happened before its arrival here, so no lease is taken to be older than it is.
    if is_gone || inner.observe(&object, clock::now()).is_none() {
        inner.subscribers.notify(&digest, Notification::MayBeFree);
    }
    object.0.metadata.resource_version
}

//! Notifications of released locks: one watch for all locks of the namespace, while there are subscribers.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{WatchEvent, WatchParams};

use super::api::{Tried, Trouble};
use super::entry::{Entry, SELECTOR};
use super::{Inner, clock};
use crate::Error;
use crate::engine::again::Again;
use crate::wakes::Heard;

/// The minimum time that the watch continues without subscribers. The maximum is twice as long.
const LINGER: Duration = if cfg!(test) { Duration::from_millis(50) } else { Duration::from_secs(10) };
/// The duration of one watch request in seconds. The next request continues where it ended.
const ONE_WATCH: u32 = 240;

/// The reason why a watch ended.
enum End {
    /// The server ended the request in time. The next one continues from the same version.
    InTime,
    /// The history since the version is no longer available.
    Gone,
    Failed(Error),
}

pub(super) async fn run(inner: Arc<Inner>) {
    let mut again = Again::new();
    let mut since = None;
    let mut lingering = tokio::time::interval(LINGER);
    lingering.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        {
            let watching = async {
                match follow(&inner, &mut since, &mut again).await {
                    End::InTime => {}
                    End::Gone => since = None,
                    End::Failed(error) => {
                        tracing::debug!(%error, "not watching leases; those who wait ask by themselves");
                        // Events may have been missed until the next watch starts.
                        since = None;
                    }
                }
                again.wait().await;
            };
            tokio::pin!(watching);
            let mut was_idle = false;
            loop {
                tokio::select! {
                    () = &mut watching => break,
                    _ = lingering.tick() => {
                        let is_idle = inner.wakes.len() == 0;
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
    let mut is_watching = inner.is_watching.lock().unwrap_or_else(PoisonError::into_inner);
    *is_watching = inner.wakes.len() > 0;
    !*is_watching
}

async fn follow(inner: &Inner, since: &mut Option<String>, again: &mut Again) -> End {
    match watch(inner, since, again).await {
        Ok(end) => end,
        Err(Trouble::Gone) => End::Gone,
        Err(trouble) => End::Failed(trouble.into()),
    }
}

async fn watch(inner: &Inner, since: &mut Option<String>, again: &mut Again) -> Tried<End> {
    let leases = &inner.leases;
    let is_new = since.is_none();
    let version = match since {
        Some(version) => version,
        None => since.insert(leases.newest().await?),
    };
    let params = WatchParams::default().labels(SELECTOR).timeout(ONE_WATCH);
    let events = leases.call("watch", leases.api.watch(&params, version)).await?;
    if is_new {
        // A client that asked before this version was read may have missed an event. Later events are received.
        inner.wakes.tell_all();
    }
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        let event = event.map_err(|error| leases.trouble("watch", error))?;
        if let WatchEvent::Error(status) = event {
            return Err(leases.trouble("watch", kube::Error::Api(status)));
        }
        again.heard();
        if let Some(newer) = take_in(inner, event) {
            *since = Some(newer);
        }
    }
    Ok(End::InTime)
}

/// Notifies the subscribers. Returns the version of the event.
fn take_in(inner: &Inner, event: WatchEvent<Lease>) -> Option<String> {
    let (entry, is_gone) = match event {
        WatchEvent::Added(lease) | WatchEvent::Modified(lease) => (Entry(lease), false),
        WatchEvent::Deleted(lease) => (Entry(lease), true),
        WatchEvent::Bookmark(bookmark) => return Some(bookmark.metadata.resource_version),
        WatchEvent::Error(_) => return None,
    };
    let digest = entry.digest()?;
    if is_gone {
        inner.observed().forget(&digest);
    }
    // The write happened before its arrival here, so no lease is taken to be older than it is.
    if is_gone || inner.look(&entry, clock::now()).is_none() {
        inner.wakes.tell(&digest, Heard::Maybe);
    }
    entry.0.metadata.resource_version
}

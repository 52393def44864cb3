//! Watches: streams of events, one a line, until the client disconnects.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::cluster::{Cluster, LeaseEvent};
use super::http::{Server, closed};
use super::request::{LeaseRequest, Selector};
use super::status::ApiError;

/// The duration of a watch without a limit.
const LONGEST_SECONDS: u64 = 1800;

type Lines = mpsc::Sender<io::Result<Bytes>>;

/// The response body of a watch.
pub(super) struct Stream(mpsc::Receiver<io::Result<Bytes>>);

impl Body for Stream {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(context).map(|line| line.map(|line| line.map(Frame::data)))
    }
}

/// Starts a watch.
pub(super) fn watch(server: Arc<Server>, request: LeaseRequest) -> Stream {
    let (lines, stream) = mpsc::channel(16);
    tokio::spawn(async move {
        server.watches.send_modify(|open| *open += 1);
        // If the client has disconnected, there is nothing left to do.
        let _ = follow(&server, &request, &lines).await;
        server.watches.send_modify(|open| *open -= 1);
    });
    Stream(stream)
}

async fn follow(server: &Server, request: &LeaseRequest, lines: &Lines) -> Result<(), Disconnected> {
    let mut signals = server.signals.subscribe();
    let begun = *signals.borrow_and_update();
    let mut bookmarks = begun.bookmarks;
    let selector = Selector::of(request);
    let seconds = request.get("timeoutSeconds").and_then(|seconds| seconds.parse().ok());
    let end = tokio::time::sleep(Duration::from_secs(seconds.unwrap_or(LONGEST_SECONDS)));
    tokio::pin!(end);
    let since = request.get("resourceVersion").and_then(|version| version.parse::<u64>().ok());
    let mut seen = since.filter(|version| *version > 0);
    loop {
        let (news, now) = {
            let cluster = server.cluster();
            (news(&cluster, &request.namespace, &selector, seen), cluster.revision())
        };
        match news {
            Ok(news) => {
                for line in news {
                    send(lines, &line).await?;
                }
            }
            Err(error) => {
                return send(lines, &json!({ "type": "ERROR", "object": error.status() })).await;
            }
        }
        seen = Some(now);
        tokio::select! {
            changed = signals.changed() => changed.map_err(|_| Disconnected)?,
            () = &mut end => return Ok(()),
            () = lines.closed() => return Err(Disconnected),
        }
        let signals = *signals.borrow_and_update();
        if signals.cuts != begun.cuts {
            return lines.send(Err(closed())).await.map_err(|_| Disconnected);
        }
        if signals.ends != begun.ends {
            return Ok(());
        }
        let is_told = signals.bookmarks != std::mem::replace(&mut bookmarks, signals.bookmarks);
        if is_told && request.get("allowWatchBookmarks") == Some("true") {
            send(lines, &bookmark(now)).await?;
        }
    }
}

/// The client has disconnected.
struct Disconnected;

async fn send(lines: &Lines, line: &Value) -> Result<(), Disconnected> {
    lines.send(Ok(Bytes::from(format!("{line}\n")))).await.map_err(|_| Disconnected)
}

fn bookmark(revision: u64) -> Value {
    let lease = json!({
        "kind": "Lease", "apiVersion": "coordination.k8s.io/v1",
        "metadata": { "resourceVersion": revision.to_string(), "creationTimestamp": null }, "spec": {},
    });
    json!({ "type": "BOOKMARK", "object": lease })
}

/// Returns the events after a revision, or one event for each existing object.
fn news(
    cluster: &Cluster,
    namespace: &str,
    selector: &Selector,
    seen: Option<u64>,
) -> Result<Vec<Value>, ApiError> {
    let changes = if let Some(seen) = seen {
        cluster.since(seen, namespace)?
    } else {
        let revision = cluster.revision();
        let added = |lease| LeaseEvent { revision, kind: "ADDED", lease };
        cluster.at(revision, namespace)?.into_values().map(added).collect()
    };
    let line = |change: LeaseEvent| json!({ "type": change.kind, "object": change.lease });
    Ok(changes.into_iter().filter(|change| selector.matches(&change.lease)).map(line).collect())
}

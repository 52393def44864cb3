//! Watches: streams of events, one a line, until the client disconnects.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::asked::{Asked, Selector};
use super::cluster::{Change, Cluster};
use super::http::{Server, closed};
use super::status::Refusal;

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
pub(super) fn watch(server: Arc<Server>, asked: Asked) -> Stream {
    let (lines, stream) = mpsc::channel(16);
    tokio::spawn(async move {
        server.watches.send_modify(|open| *open += 1);
        // If the client has disconnected, there is nothing left to do.
        let _ = follow(&server, &asked, &lines).await;
        server.watches.send_modify(|open| *open -= 1);
    });
    Stream(stream)
}

async fn follow(server: &Server, asked: &Asked, lines: &Lines) -> Result<(), Gone> {
    let mut pulse = server.pulse.subscribe();
    let begun = *pulse.borrow_and_update();
    let mut bookmarks = begun.bookmarks;
    let selector = Selector::of(asked);
    let seconds = asked.get("timeoutSeconds").and_then(|seconds| seconds.parse().ok());
    let end = tokio::time::sleep(Duration::from_secs(seconds.unwrap_or(LONGEST_SECONDS)));
    tokio::pin!(end);
    let since = asked.get("resourceVersion").and_then(|version| version.parse::<u64>().ok());
    let mut seen = since.filter(|version| *version > 0);
    loop {
        let (news, now) = {
            let cluster = server.cluster();
            (news(&cluster, &asked.namespace, &selector, seen), cluster.revision())
        };
        match news {
            Ok(news) => {
                for line in news {
                    send(lines, &line).await?;
                }
            }
            Err(refusal) => {
                return send(lines, &json!({ "type": "ERROR", "object": refusal.status() })).await;
            }
        }
        seen = Some(now);
        tokio::select! {
            changed = pulse.changed() => changed.map_err(|_| Gone)?,
            () = &mut end => return Ok(()),
            () = lines.closed() => return Err(Gone),
        }
        let pulse = *pulse.borrow_and_update();
        if pulse.cuts != begun.cuts {
            return lines.send(Err(closed())).await.map_err(|_| Gone);
        }
        if pulse.ends != begun.ends {
            return Ok(());
        }
        let is_told = pulse.bookmarks != std::mem::replace(&mut bookmarks, pulse.bookmarks);
        if is_told && asked.get("allowWatchBookmarks") == Some("true") {
            send(lines, &bookmark(now)).await?;
        }
    }
}

/// The client has disconnected.
struct Gone;

async fn send(lines: &Lines, line: &Value) -> Result<(), Gone> {
    lines.send(Ok(Bytes::from(format!("{line}\n")))).await.map_err(|_| Gone)
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
) -> Result<Vec<Value>, Refusal> {
    let changes = if let Some(seen) = seen {
        cluster.since(seen, namespace)?
    } else {
        let revision = cluster.revision();
        let added = |lease| Change { revision, kind: "ADDED", lease };
        cluster.at(revision, namespace)?.into_values().map(added).collect()
    };
    let line = |change: Change| json!({ "type": change.kind, "object": change.lease });
    Ok(changes.into_iter().filter(|change| selector.takes(&change.lease)).map(line).collect())
}

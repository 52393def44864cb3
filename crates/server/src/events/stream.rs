//! Events on their way to one who listens.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;

use super::{Listening, Telling};
use crate::clock;

/// How often something is sent when there is nothing to tell, so that both sides know of each other.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How often is asked whether whoever listens still may.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// How many texts wait for the connection.
const IN_FLIGHT: usize = 16;

const STILL_HERE: Bytes = Bytes::from_static(b": still here\n\n");

/// Begins to tell.
pub(super) fn answer(
    listening: Listening,
    seat: OwnedSemaphorePermit,
    came_back: bool,
    stopping: CancellationToken,
) -> Response {
    let (sender, receiver) = mpsc::channel(IN_FLIGHT);
    let first = if came_back { "event: reset\ndata: []\n\n" } else { "event: ready\ndata: []\n\n" };
    tokio::spawn(async move {
        // Ends when the daemon stops, or when nobody takes what is sent.
        stopping.run_until_cancelled(forward(listening, sender, first)).await;
        drop(seat);
    });
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    (headers, Body::new(Told(receiver))).into_response()
}

async fn forward(listening: Listening, sender: mpsc::Sender<Bytes>, first: &'static str) {
    let Listening { mut events, mut knows, telling, token } = listening;
    // Before that, a change would be found by nobody.
    while !*knows.borrow_and_update() {
        let is_over = match tokio::time::timeout(HEARTBEAT, knows.changed()).await {
            Ok(changed) => changed.is_err(),
            Err(_) => sender.send(STILL_HERE).await.is_err(),
        };
        if is_over {
            return;
        }
    }
    let mut text = Bytes::from_static(first.as_bytes());
    let mut asked_at = clock::now();
    while sender.send(text).await.is_ok() {
        text = match tokio::time::timeout(HEARTBEAT, events.recv()).await {
            Ok(Ok(event)) if telling == Telling::Names => {
                format!("event: changed\ndata: {}\n\n", event.name).into()
            }
            Ok(Ok(event)) => {
                format!("id: {}\nevent: {}\ndata: {}\n\n", event.id, event.name, event.data).into()
            }
            Ok(Err(RecvError::Lagged(_))) => Bytes::from_static(b"event: reset\ndata: []\n\n"),
            Ok(Err(RecvError::Closed)) => return,
            Err(_) => STILL_HERE,
        };
        // Whose token ends is told no more.
        if let Some((keep, id)) = &token
            && clock::now().saturating_sub(asked_at) >= ASK_AGAIN
        {
            asked_at = clock::now();
            if keep.is_good(id).await.is_ok_and(|is_good| !is_good) {
                return;
            }
        }
    }
}

/// A body that goes on.
struct Told(mpsc::Receiver<Bytes>);

impl HttpBody for Told {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|text| text.map(|text| Ok(Frame::data(text))))
    }
}

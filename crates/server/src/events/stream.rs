//! The event stream of one listener.

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
use crate::access::Access;
use crate::app::App;
use crate::clock;
use crate::keep::Keep;

/// The interval between heartbeats of an idle stream, by which both sides detect a broken connection.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(15);
/// The interval between checks that the listener's token is still valid.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// The number of messages buffered for the connection.
const IN_FLIGHT: usize = 16;

pub(crate) const STILL_HERE: Bytes = Bytes::from_static(b": still here\n\n");

/// Starts the stream.
pub(super) fn answer(
    listening: Listening,
    seat: OwnedSemaphorePermit,
    came_back: bool,
    stopping: CancellationToken,
) -> Response {
    let first = if came_back { "event: reset\ndata: []\n\n" } else { "event: ready\ndata: []\n\n" };
    told(seat, stopping, move |sender| forward(listening, sender, first))
}

/// Returns a streaming response. `sending` holds the permit `seat` and runs until it ends, the daemon stops, or the
/// listener disconnects.
pub(crate) fn told<F: Future<Output = ()> + Send + 'static>(
    seat: OwnedSemaphorePermit,
    stopping: CancellationToken,
    sending: impl FnOnce(mpsc::Sender<Bytes>) -> F,
) -> Response {
    let (sender, receiver) = mpsc::channel(IN_FLIGHT);
    let sending = sending(sender);
    tokio::spawn(async move {
        // Ends when the daemon stops, or when `sending` finds that the listener has disconnected.
        stopping.run_until_cancelled(sending).await;
        drop(seat);
    });
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    (headers, Body::new(Told(receiver))).into_response()
}

/// The token of a long-lived stream. The stream ends with it.
#[derive(Default)]
pub(crate) struct Welcome {
    token: Option<(Keep, String)>,
    asked_at: Duration,
}

impl Welcome {
    pub(crate) fn of(app: &App, access: &Access) -> Self {
        let token = access.token_id().map(|id| (app.keep.clone(), id.to_owned()));
        Self { token, asked_at: clock::now() }
    }

    /// Returns whether the token is still valid, as of the last check.
    pub(crate) async fn lasts(&mut self) -> bool {
        let Some((keep, id)) = &self.token else { return true };
        if clock::now().saturating_sub(self.asked_at) < ASK_AGAIN {
            return true;
        }
        self.asked_at = clock::now();
        keep.is_good(id).await.unwrap_or(true)
    }
}

async fn forward(listening: Listening, sender: mpsc::Sender<Bytes>, first: &'static str) {
    let Listening { mut events, mut knows, telling, mut welcome } = listening;
    // Before the first poll there is no state to compare with, so changes would be missed.
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
        // The stream ends when the listener's token ends.
        if !welcome.lasts().await {
            return;
        }
    }
}

/// A streaming body.
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

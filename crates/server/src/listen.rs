//! Connections: accepted, limited, and ended when the daemon is.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// The most connections at once; more wait to be accepted.
const MOST_CONNECTIONS: usize = 1024;
/// How long a request's head may take to arrive.
const HEAD_PATIENCE: Duration = Duration::from_secs(15);
/// The largest head, in bytes.
const MAX_HEAD: usize = 64 * 1024;
const MAX_HEADERS: usize = 64;
/// How long a shutdown waits for requests that are being answered.
const LAST_ANSWERS: Duration = Duration::from_secs(15);
/// How long to wait when the system is out of connections.
const BREATHER: Duration = Duration::from_millis(100);

/// Answers everybody who comes, until it is told to stop and everybody has been answered.
pub(crate) async fn accept(listener: TcpListener, app: Router, stopping: CancellationToken) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS);
    let answering = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let next = async || {
        let place = Arc::clone(&places).acquire_owned().await.ok()?;
        Some((place, next_stream(&listener).await))
    };
    let answer = |stream: TcpStream, place: Option<OwnedSemaphorePermit>| {
        let service = TowerToHyperService::new(app.clone());
        let connection = answering.watch(http.serve_connection(TokioIo::new(stream), service));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended early");
            }
            drop(place);
        });
    };
    while let Some(Some((place, stream))) = stopping.run_until_cancelled(next()).await {
        answer(stream, Some(place));
    }
    // Whom the system has let in already counts as accepted: closing the door would cut them off.
    for stream in let_in(listener) {
        answer(stream, None);
    }
    if tokio::time::timeout(LAST_ANSWERS, answering.shutdown()).await.is_err() {
        tracing::warn!("stopped before everybody was answered");
    }
}

/// Those who wait at the door when it is closed; no more than could be answered at once.
fn let_in(listener: TcpListener) -> Vec<TcpStream> {
    let Ok(listener) = listener.into_std() else { return Vec::new() };
    let next = || {
        let (stream, _) = listener.accept().ok()?;
        stream.set_nonblocking(true).ok()?;
        TcpStream::from_std(stream).ok()
    };
    std::iter::from_fn(next).take(MOST_CONNECTIONS).collect()
}

async fn next_stream(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Small answers should not wait for more to come; if it cannot be set, they do.
                let _ = stream.set_nodelay(true);
                return stream;
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(BREATHER).await;
            }
        }
    }
}

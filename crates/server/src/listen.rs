//! Connections: accepted, limited, and ended when the daemon is.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use crate::access::Peer;
use crate::tls::Tls;

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
pub(crate) async fn accept(
    listener: TcpListener,
    app: Router,
    tls: Option<Arc<Tls>>,
    stopping: CancellationToken,
) {
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
    while let Some(Some((place, (stream, peer)))) = stopping.run_until_cancelled(next()).await {
        let visit = Visit { http: http.clone(), app: app.clone(), peer, watcher: answering.watcher() };
        let tls = tls.clone();
        tokio::spawn(async move {
            match tls {
                None => visit.answer(stream).await,
                Some(tls) => {
                    if let Some(stream) = tls.greet(stream).await {
                        visit.answer(stream).await;
                    }
                }
            }
            drop(place);
        });
    }
    drop(listener);
    if tokio::time::timeout(LAST_ANSWERS, answering.shutdown()).await.is_err() {
        tracing::warn!("stopped before everybody was answered");
    }
}

/// One connection, before it is known whether it is encrypted.
struct Visit {
    http: http1::Builder,
    app: Router,
    peer: Peer,
    watcher: Watcher,
}

impl Visit {
    async fn answer(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let Self { http, app, peer, watcher } = self;
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer);
            // A router is always ready.
            Service::call(&mut app.clone(), request)
        });
        if let Err(error) = watcher.watch(http.serve_connection(TokioIo::new(stream), service)).await {
            tracing::debug!(%error, "a connection ended early");
        }
    }
}

async fn next_stream(listener: &TcpListener) -> (TcpStream, Peer) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Small answers should not wait for more to come; if it cannot be set, they do.
                let _ = stream.set_nodelay(true);
                return (stream, Peer(peer.ip()));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(BREATHER).await;
            }
        }
    }
}

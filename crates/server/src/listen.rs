//! Connections: accepting and limiting them, and draining them at shutdown.

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
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use crate::access::Peer;
use crate::crowd::{Crowd, Seat};
use crate::prefix::Prefix;
use crate::tls::Tls;

/// The timeout of a request's head, and the idle timeout of a connection.
const HEAD_PATIENCE: Duration = Duration::from_secs(15);
/// The maximum size of a head, in bytes.
const MAX_HEAD: usize = 64 * 1024;
const MAX_HEADERS: usize = 64;
/// The drain timeout: how long a shutdown waits for requests in progress.
const LAST_ANSWERS: Duration = Duration::from_secs(15);
/// The maximum number of connections that a shutdown accepts from the listen backlog.
const MOST_AT_THE_DOOR: usize = 4096;
/// The wait after the system could not accept a connection.
const BREATHER: Duration = Duration::from_millis(100);

/// Serves connections until the daemon stops, then drains the requests in progress.
pub(crate) async fn accept(
    listener: TcpListener,
    app: Router,
    prefix: Prefix,
    tls: Option<Arc<Tls>>,
    stopping: CancellationToken,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS);
    let answering = GracefulShutdown::new();
    let crowd = Crowd::new();
    let next = async || {
        let came = next_stream(&listener, &crowd).await;
        Some((crowd.seat().await?, came))
    };
    let answer = |(stream, peer): (TcpStream, Peer), seat: Arc<Seat>| {
        let (http, app, watcher) = (http.clone(), app.clone(), answering.watcher());
        let visit = Visit { http, app, prefix: prefix.clone(), peer, seat: Arc::clone(&seat), watcher };
        let tls = tls.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = visit.welcome(stream, tls) => {}
                () = seat.has_to_leave() => tracing::debug!("an idle connection made room for another"),
            }
        });
    };
    while let Some(Some((seat, came))) = stopping.run_until_cancelled(next()).await {
        answer(came, seat);
    }
    // Connections in the listen backlog count as accepted: closing the listener would reset them.
    for came in let_in(listener) {
        if let Some(seat) = crowd.seat().await {
            answer(came, seat);
        }
    }
    if tokio::time::timeout(LAST_ANSWERS, answering.shutdown()).await.is_err() {
        tracing::warn!("stopped before everybody was answered");
    }
}

/// A connection, before the TLS handshake if there is one.
struct Visit {
    http: http1::Builder,
    app: Router,
    prefix: Prefix,
    peer: Peer,
    seat: Arc<Seat>,
    watcher: Watcher,
}

impl Visit {
    async fn welcome(self, stream: TcpStream, tls: Option<Arc<Tls>>) {
        match tls {
            None => self.answer(stream).await,
            Some(tls) => {
                if let Some(stream) = tls.greet(stream).await {
                    self.answer(stream).await;
                }
            }
        }
    }

    async fn answer(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let Self { http, app, prefix, peer, seat, watcher } = self;
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer);
            prefix.strip(request.uri_mut());
            let attended = seat.attend();
            // A router is always ready.
            let answer = Service::call(&mut app.clone(), request);
            async move { answer.await.map(|answer| answer.map(|body| attended.until_sent(body))) }
        });
        if let Err(error) = watcher.watch(http.serve_connection(TokioIo::new(stream), service)).await {
            tracing::debug!(%error, "a connection ended early");
        }
    }
}

/// Accepts the connections in the listen backlog and closes the listener.
fn let_in(listener: TcpListener) -> Vec<(TcpStream, Peer)> {
    let Ok(listener) = listener.into_std() else { return Vec::new() };
    let next = || {
        let (stream, peer) = listener.accept().ok()?;
        stream.set_nonblocking(true).ok()?;
        Some((TcpStream::from_std(stream).ok()?, Peer(peer.ip())))
    };
    std::iter::from_fn(next).take(MOST_AT_THE_DOOR).collect()
}

async fn next_stream(listener: &TcpListener, crowd: &Crowd) -> (TcpStream, Peer) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Without this option small responses may be delayed. It is not essential, so an error is ignored.
                let _ = stream.set_nodelay(true);
                return (stream, Peer(peer.ip()));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                crowd.close_longest_idle();
                tokio::time::sleep(BREATHER).await;
            }
        }
    }
}

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
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use crate::access::Peer;
use crate::crowd::{Crowd, Seat};
use crate::prefix::Prefix;
use crate::tls::Tls;

/// How long a request's head may take to arrive, and how long a connection may ask nothing.
const HEAD_PATIENCE: Duration = Duration::from_secs(15);
/// The largest head, in bytes.
const MAX_HEAD: usize = 64 * 1024;
const MAX_HEADERS: usize = 64;
/// How long a shutdown waits for requests that are being answered.
const LAST_ANSWERS: Duration = Duration::from_secs(15);
/// The most who are let in when the door is closed.
const MOST_AT_THE_DOOR: usize = 4096;
/// How long to wait when the system is out of connections.
const BREATHER: Duration = Duration::from_millis(100);

/// Answers everybody who comes, until it is told to stop and everybody has been answered.
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
    // Whom the system has let in already counts as accepted: closing the door would cut them off.
    for came in let_in(listener) {
        if let Some(seat) = crowd.seat().await {
            answer(came, seat);
        }
    }
    if tokio::time::timeout(LAST_ANSWERS, answering.shutdown()).await.is_err() {
        tracing::warn!("stopped before everybody was answered");
    }
}

/// One connection, before it is known whether it is encrypted.
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

/// Those who wait at the door when it is closed.
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
                // Small answers should not wait for more to come; if it cannot be set, they do.
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

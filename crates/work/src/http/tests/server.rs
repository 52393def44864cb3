//! A server on loopback that sends exactly the given responses.

use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

/// A received request.
#[derive(Clone, Debug, Default)]
pub(super) struct ReceivedRequest {
    pub(super) line: String,
    pub(super) headers: HashMap<String, String>,
    pub(super) body: String,
}

pub(super) struct Server {
    pub(super) address: SocketAddr,
    seen: Arc<Mutex<Vec<ReceivedRequest>>>,
    accepting: AbortHandle,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Server {
    /// Reads a request from each connection, then passes the connection to `answer`.
    pub(super) async fn start<F, Fut>(answer: F) -> Self
    where
        F: Fn(ReceivedRequest, TcpStream) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        Self::at("127.0.0.1:0".parse().unwrap(), answer).await.unwrap()
    }

    /// Starts the server at this address, if it is free.
    pub(super) async fn at<F, Fut>(address: SocketAddr, answer: F) -> Option<Self>
    where
        F: Fn(ReceivedRequest, TcpStream) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        let listener = TcpListener::bind(address).await.ok()?;
        let address = listener.local_addr().unwrap();
        let accepting = tokio::spawn(async move {
            let answer = Arc::new(answer);
            let mut connections = JoinSet::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let (answer, log) = (Arc::clone(&answer), Arc::clone(&log));
                connections.spawn(async move {
                    if let Some(request) = read(&mut stream).await {
                        log.lock().unwrap().push(request.clone());
                        answer(request, stream).await;
                    }
                });
            }
        });
        Some(Self { address, seen, accepting: accepting.abort_handle() })
    }

    /// Sends the same response to every client.
    pub(super) async fn saying(answer: impl Into<String>) -> Self {
        let answer = answer.into();
        Self::start(move |_, stream| respond(stream, answer.clone())).await
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(super) fn seen(&self) -> Vec<ReceivedRequest> {
        self.seen.lock().unwrap().clone()
    }

    pub(super) fn calls(&self) -> usize {
        self.seen.lock().unwrap().len()
    }
}

/// Builds a response with this status, these additional header lines and this body.
pub(super) fn answer(status: u16, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nConnection: close\r\n{headers}\r\n{body}")
}

pub(super) async fn respond(mut stream: TcpStream, answer: String) {
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
}

/// Waits until the client has closed the connection.
pub(super) async fn hold(mut stream: TcpStream) {
    let mut nothing = [0; 64];
    while stream.read(&mut nothing).await.is_ok_and(|read| read > 0) {}
}

async fn read(stream: &mut TcpStream) -> Option<ReceivedRequest> {
    let mut bytes = Vec::new();
    let head = loop {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
    };
    let text = String::from_utf8(bytes[..head].to_vec()).ok()?;
    let mut lines = text.lines();
    let line = lines.next()?.to_owned();
    let headers: HashMap<_, _> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.get("content-length").map_or(0, |length| length.parse::<usize>().unwrap());
    let mut body = bytes.split_off(head + 4);
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some(ReceivedRequest { line, headers, body: String::from_utf8(body).ok()? })
}

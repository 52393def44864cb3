//! A proxy that serves the daemon under a path, beside other services.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

/// The proxy's treatment of the path prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Manner {
    /// The proxy removes the prefix before it forwards a request.
    TakesItAway,
    LeavesIt,
}

/// A proxy that handles one request per connection.
pub(crate) struct Proxy {
    pub(crate) url: String,
    strays: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    pub(crate) async fn start(to: &str, prefix: &'static str, manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let strays = Arc::new(Mutex::new(Vec::new()));
        let (seen, to) = (Arc::clone(&strays), to.to_owned());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (seen, to) = (Arc::clone(&seen), to.clone());
                tokio::spawn(async move {
                    let stray = pass(client, &to, prefix, manner).await;
                    seen.lock().unwrap().extend(stray);
                });
            }
        });
        Self { url, strays }
    }

    /// Returns the requested paths outside the prefix, which belong to other services.
    pub(crate) fn strays(&self) -> Vec<String> {
        self.strays.lock().unwrap().clone()
    }
}

/// Forwards one request and its response until either side closes. Returns the path if it is outside the prefix.
async fn pass(mut client: TcpStream, to: &str, prefix: &str, manner: Manner) -> Option<String> {
    let (head, rest) = head(&mut client).await?;
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, path, version) = (first.next()?, first.next()?, first.next()?);
    let Some(inner) = path.strip_prefix(prefix) else {
        let _ = client
            .write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            .await;
        return Some(path.to_owned());
    };
    let path = match manner {
        Manner::LeavesIt => path.to_owned(),
        Manner::TakesItAway if inner.starts_with('/') => inner.to_owned(),
        Manner::TakesItAway => format!("/{inner}"),
    };
    let headers = lines.filter(|line| !line.to_ascii_lowercase().starts_with("connection:"));
    let headers = headers.collect::<Vec<_>>().join("\r\n");
    let mut daemon = TcpStream::connect(to).await.ok()?;
    let request = format!("{method} {path} {version}\r\n{headers}\r\nConnection: close\r\n\r\n");
    daemon.write_all(request.as_bytes()).await.ok()?;
    daemon.write_all(&rest).await.ok()?;
    let _ = copy_bidirectional(&mut client, &mut daemon).await;
    None
}

/// Reads the head of a request. Returns it with the bytes that came after it.
async fn head(client: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut seen = Vec::new();
    loop {
        let mut some = [0; 4096];
        let count = client.read(&mut some).await.ok().filter(|count| *count > 0)?;
        seen.extend_from_slice(&some[..count]);
        if let Some(end) = seen.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = seen.split_off(end + 4);
            return Some((String::from_utf8(seen).ok()?.trim_end().to_owned(), rest));
        }
    }
}

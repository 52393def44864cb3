//! A connection between a node and its store that can be cut, or made to lose a response.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// The messages by which Postgres confirms a query of one row, or a change to one row. It sends them after the commit.
const DONE: [&[u8]; 2] = [b"SELECT 1\0", b"UPDATE 1\0"];

pub(crate) struct Proxy {
    pub(crate) port: u16,
    line: Arc<Line>,
}

struct Line {
    upstream: SocketAddr,
    cut: CancellationToken,
    loses_next: AtomicBool,
    lost: AtomicUsize,
}

impl Proxy {
    /// Returns a proxy to a port of this machine.
    pub(crate) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let own = listener.local_addr().unwrap().port();
        let line = Arc::new(Line {
            upstream: (Ipv4Addr::LOCALHOST, port).into(),
            cut: CancellationToken::new(),
            loses_next: AtomicBool::new(false),
            lost: AtomicUsize::new(0),
        });
        let accepting = Arc::clone(&line);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let line = Arc::clone(&accepting);
                tokio::spawn(async move { line.carry(client).await });
            }
        });
        Self { port: own, line }
    }

    /// Closes all connections, and every new one.
    pub(crate) fn cut(&self) {
        self.line.cut.cancel();
    }

    /// Loses the response of the next completed query: the connection closes instead.
    pub(crate) fn lose_next_answer(&self) {
        self.line.loses_next.store(true, Ordering::SeqCst);
    }

    /// Returns the number of lost responses.
    pub(crate) fn lost(&self) -> usize {
        self.line.lost.load(Ordering::SeqCst)
    }
}

impl Line {
    async fn carry(&self, mut client: TcpStream) -> Option<()> {
        let mut server = TcpStream::connect(self.upstream).await.ok()?;
        let (mut asked, mut answered) = (vec![0; 65_536], vec![0; 65_536]);
        loop {
            tokio::select! {
                () = self.cut.cancelled() => return None,
                read = client.read(&mut asked) => {
                    let length = read.ok().filter(|length| *length > 0)?;
                    server.write_all(&asked[..length]).await.ok()?;
                }
                read = server.read(&mut answered) => {
                    let answer = &answered[..read.ok().filter(|length| *length > 0)?];
                    let is_done =
                        DONE.iter().any(|done| answer.windows(done.len()).any(|part| part == *done));
                    if is_done && self.loses_next.swap(false, Ordering::SeqCst) {
                        self.lost.fetch_add(1, Ordering::SeqCst);
                        return None;
                    }
                    client.write_all(answer).await.ok()?;
                }
            }
        }
    }
}

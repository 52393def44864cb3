//! A relay to an acceptor inside the test, which can delay responses.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Forwards all connections. A connection keeps the delay that was set when it was opened.
pub(crate) struct Relay {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    late_ms: AtomicU64,
    is_closed: AtomicBool,
}

impl Relay {
    pub(crate) fn start(to: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, state) = (listener.local_addr().unwrap(), Arc::new(State::default()));
        let (to, shared) = (to.to_owned(), state.clone());
        thread::spawn(move || {
            for from in listener.incoming().map_while(Result::ok) {
                if !shared.is_closed.load(Ordering::SeqCst) {
                    let late = Duration::from_millis(shared.late_ms.load(Ordering::SeqCst));
                    connect(&from, &to, late);
                }
            }
        });
        Self { address, state }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the delay of responses on new connections.
    pub(crate) fn delay(&self, late: Duration) {
        self.state.late_ms.store(u64::try_from(late.as_millis()).unwrap(), Ordering::SeqCst);
    }

    /// Refuses or admits new connections.
    pub(crate) fn close(&self, is_closed: bool) {
        self.state.is_closed.store(is_closed, Ordering::SeqCst);
    }
}

fn connect(from: &TcpStream, to: &str, late: Duration) {
    let Ok(to) = TcpStream::connect(to) else { return };
    for (source, sink, late) in [(from, &to, Duration::ZERO), (&to, from, late)] {
        let (source, sink) = (source.try_clone().unwrap(), sink.try_clone().unwrap());
        thread::spawn(move || pass_on(source, sink, late));
    }
}

fn pass_on(mut source: TcpStream, mut sink: TcpStream, late: Duration) {
    sink.set_nodelay(true).unwrap();
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = source.read(&mut bytes) {
        thread::sleep(late);
        if sink.write_all(&bytes[..length]).is_err() {
            break;
        }
    }
    // An error means that the peer has already closed the connection.
    drop(sink.shutdown(Shutdown::Both));
    drop(source.shutdown(Shutdown::Both));
}

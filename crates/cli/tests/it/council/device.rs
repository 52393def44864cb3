//! Devices, with one directory per device and one process per command, and a relay that delays the responses of an acceptor.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;

/// A device between its commands.
#[derive(Clone)]
pub(crate) struct Device {
    directory: PathBuf,
}

impl Device {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        self.command_within("60s", words)
    }

    fn command_within(&self, deadline: &str, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdoff"));
        command.args(["council", "--json", "--deadline", deadline, "--dir"]).arg(&self.directory).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn spawn(&self, words: &[&str]) -> Child {
        self.command(words).spawn().unwrap()
    }

    /// Runs a command to its end and returns its response.
    pub(crate) fn run(&self, words: &[&str]) -> Value {
        answer(words, &self.command(words).output().unwrap())
    }

    /// Runs a command with this deadline.
    pub(crate) fn run_within(&self, deadline: &str, words: &[&str]) -> Value {
        answer(words, &self.command_within(deadline, words).output().unwrap())
    }

    /// Runs a command and kills it after each of these delays. Then it runs the command to its end, with the same
    /// operation id.
    pub(crate) fn run_killed(&self, words: &[&str], after: &[Duration]) -> Value {
        for after in after {
            let mut child = self.spawn(words);
            std::thread::sleep(*after);
            child.kill().unwrap();
            child.wait().unwrap();
        }
        self.run(words)
    }
}

/// Returns the response, which is the last line. The outcome "not committed" is a valid response.
pub(crate) fn answer(words: &[&str], output: &Output) -> Value {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let last = out.lines().last().unwrap_or_default();
    match serde_json::from_str(last) {
        Ok(value) if matches!(output.status.code(), Some(0 | 75)) => value,
        _ => panic!("{words:?} exited with {:?}: {out}{err}", output.status.code()),
    }
}

/// Forwards all connections. A connection keeps the delay that was set when it was opened.
pub(crate) struct Relay {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    delay_ms: AtomicU64,
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
                    let delay = Duration::from_millis(shared.delay_ms.load(Ordering::SeqCst));
                    connect(&from, &to, delay);
                }
            }
        });
        Self { address, state }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the delay of responses on new connections.
    pub(crate) fn delay(&self, delay: Duration) {
        self.state.delay_ms.store(u64::try_from(delay.as_millis()).unwrap(), Ordering::SeqCst);
    }

    /// Refuses or admits new connections.
    pub(crate) fn close(&self, is_closed: bool) {
        self.state.is_closed.store(is_closed, Ordering::SeqCst);
    }
}

fn connect(from: &TcpStream, to: &str, delay: Duration) {
    let Ok(to) = TcpStream::connect(to) else { return };
    for (source, sink, delay) in [(from, &to, Duration::ZERO), (&to, from, delay)] {
        let (source, sink) = (source.try_clone().unwrap(), sink.try_clone().unwrap());
        thread::spawn(move || forward(source, sink, delay));
    }
}

fn forward(mut source: TcpStream, mut sink: TcpStream, delay: Duration) {
    sink.set_nodelay(true).unwrap();
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = source.read(&mut bytes) {
        thread::sleep(delay);
        if sink.write_all(&bytes[..length]).is_err() {
            break;
        }
    }
    // An error means that the peer has already closed the connection.
    drop(sink.shutdown(Shutdown::Both));
    drop(source.shutdown(Shutdown::Both));
}

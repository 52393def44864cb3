//! Running a daemon until a signal ends it.

use crate::{Error, Options, Server};

/// How a daemon has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Stopped {
    /// All requests and steps have ended or were returned to the queue.
    Gracefully,
    /// A second signal came: running steps are rescued when their leases have expired.
    AtOnce,
}

/// Runs a daemon until `SIGTERM` or Ctrl-C. On `SIGHUP` it reads its policies again. `started` is called when it serves
/// requests.
pub async fn serve(options: Options, started: impl FnOnce(&Server)) -> Result<Stopped, Error> {
    let mut signals = Signals::new().map_err(Error::Signals)?;
    let server = tokio::select! {
        server = Server::start(options) => server?,
        () = signals.ending() => return Ok(Stopped::Gracefully),
    };
    started(&server);
    let is_balanced = loop {
        match signals.next().await {
            Signal::Hangup => server.reload().await,
            Signal::Terminate => break true,
            Signal::Interrupt => break false,
        }
    };
    tracing::info!("stopping: steps that run may end; a second signal stops at once");
    let stop = async {
        // After Ctrl-C there is no load balancer that must notice first.
        if is_balanced {
            server.retire().await;
        }
        server.shutdown().await;
    };
    tokio::select! {
        () = stop => Ok(Stopped::Gracefully),
        () = signals.ending() => Ok(Stopped::AtOnce),
    }
}

/// A signal of the operating system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Signal {
    Terminate,
    Interrupt,
    #[cfg_attr(not(unix), expect(dead_code, reason = "only Unix has it"))]
    Hangup,
}

#[cfg(unix)]
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::Terminate,
            _ = self.interrupt.recv() => Signal::Interrupt,
            _ = self.hangup.recv() => Signal::Hangup,
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    #[expect(clippy::unnecessary_wraps, reason = "elsewhere it can fail")]
    fn new() -> std::io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> Signal {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Signal::Interrupt
    }
}

impl Signals {
    /// Waits for a signal that ends the daemon.
    async fn ending(&mut self) {
        while self.next().await == Signal::Hangup {}
    }
}

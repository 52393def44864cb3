//! Running a daemon until a signal ends it.

use crate::{Error, Options, Server};

/// How a daemon has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Shutdown {
    /// All requests and steps have ended or were returned to the queue.
    Graceful,
    /// A second signal came: running steps are rescued when their leases have expired.
    Forced,
}

/// Runs a daemon until `SIGTERM` or Ctrl-C. On `SIGHUP` it reads its policies again. `started` is called when it serves
/// requests.
pub async fn serve(options: Options, started: impl FnOnce(&Server)) -> Result<Shutdown, Error> {
    let mut signals = OsSignals::new().map_err(Error::Signals)?;
    let server = tokio::select! {
        server = Server::start(options) => server?,
        () = signals.ending() => return Ok(Shutdown::Graceful),
    };
    started(&server);
    let has_load_balancer = loop {
        match signals.next().await {
            OsSignal::Hangup => server.reload().await,
            OsSignal::Terminate => break true,
            OsSignal::Interrupt => break false,
        }
    };
    tracing::info!("began to shut down; a second signal stops the daemon at once");
    let stop = async {
        // After Ctrl-C there is no load balancer that must notice first.
        if has_load_balancer {
            server.begin_shutdown().await;
        }
        server.shutdown().await;
    };
    tokio::select! {
        () = stop => Ok(Shutdown::Graceful),
        () = signals.ending() => Ok(Shutdown::Forced),
    }
}

/// A signal of the operating system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OsSignal {
    Terminate,
    Interrupt,
    #[cfg_attr(not(unix), expect(dead_code, reason = "only Unix has it"))]
    Hangup,
}

#[cfg(unix)]
struct OsSignals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl OsSignals {
    fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> OsSignal {
        tokio::select! {
            _ = self.terminate.recv() => OsSignal::Terminate,
            _ = self.interrupt.recv() => OsSignal::Interrupt,
            _ = self.hangup.recv() => OsSignal::Hangup,
        }
    }
}

#[cfg(not(unix))]
struct OsSignals;

#[cfg(not(unix))]
impl OsSignals {
    #[expect(clippy::unnecessary_wraps, reason = "elsewhere it can fail")]
    fn new() -> std::io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> OsSignal {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        OsSignal::Interrupt
    }
}

impl OsSignals {
    /// Waits for a signal that ends the daemon.
    async fn ending(&mut self) {
        while self.next().await == OsSignal::Hangup {}
    }
}

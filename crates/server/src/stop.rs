//! From the start to a signal, and no further.

use crate::{Error, Options, Server};

/// How a daemon has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Stopped {
    /// Everything was finished or put back.
    Gracefully,
    /// A second signal came: what was running is rescued when its lease is over.
    AtOnce,
}

/// Runs a daemon until `SIGTERM` or Ctrl-C. `started` is told when it answers.
pub async fn serve(options: Options, started: impl FnOnce(&Server)) -> Result<Stopped, Error> {
    let mut signals = Signals::new().map_err(Error::Signals)?;
    let server = tokio::select! {
        server = Server::start(options) => server?,
        () = signals.next() => return Ok(Stopped::Gracefully),
    };
    started(&server);
    signals.next().await;
    tracing::info!("stopping: steps that run may end; a second signal stops at once");
    tokio::select! {
        () = server.shutdown() => Ok(Stopped::Gracefully),
        () = signals.next() => Ok(Stopped::AtOnce),
    }
}

#[cfg(unix)]
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
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

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

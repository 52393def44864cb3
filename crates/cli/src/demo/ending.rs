//! The signals that end the demo.

/// Waits for Ctrl-C, `SIGTERM`, or the hang-up of the terminal.
#[cfg(unix)]
pub(super) struct Ending {
    signals: [tokio::signal::unix::Signal; 3],
}

#[cfg(unix)]
impl Ending {
    pub(super) fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let [interrupt, terminate, hangup] =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
        Ok(Self { signals: [interrupt?, terminate?, hangup?] })
    }

    pub(super) async fn wanted(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.signals;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

#[cfg(not(unix))]
pub(super) struct Ending;

#[cfg(not(unix))]
impl Ending {
    #[expect(clippy::unnecessary_wraps, reason = "elsewhere it can fail")]
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self)
    }

    pub(super) async fn wanted(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

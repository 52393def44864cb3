//! A link to one peer: the client's end of a connection.

mod course;
mod driver;
mod hearing;
mod live;
mod open;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::clock::Instant;
use crate::{Error, Key, LinkOptions, PublicKey, clock, metrics};
use driver::{Driver, State};
use live::{Live, Unanswered};

pub use hearing::{Heard, Hearing};

/// The target of a link. The key identifies the peer; the address only tells where to connect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Remote {
    /// The peer's public key.
    pub key: PublicKey,
    /// The address that the peer listens at, such as `host:port`.
    pub address: String,
}

/// A handle to one peer, which stays valid when the connection is lost.
///
/// The first use connects. From then on the link stays connected; if the connection is lost, the link connects again
/// when its policy says so. Until then calls fail at once, with an error that states for how long the peer has been
/// unreachable and when the next attempt is. Clones share the connection. Dropping the last clone closes it.
#[derive(Clone)]
pub struct Link {
    shared: Arc<Shared>,
}

struct Shared {
    remote: Remote,
    call_timeout: Duration,
    state: watch::Receiver<State>,
    wanted: Arc<Notify>,
    closing: CancellationToken,
    _dropped: DropGuard,
}

/// The state of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// The link has not been used yet, or its policy has given up. The next use connects.
    AtRest,
    /// The link is connecting.
    Connecting,
    /// The link is connected.
    Connected,
    /// The link waits before its next attempt.
    Waiting {
        /// The time since the peer became unreachable.
        since: Duration,
        /// The time until the next attempt. `None` if the policy has given up: the first use after a pause makes the
        /// next attempt.
        next_try: Option<Duration>,
        /// The cause of the last failure.
        why: String,
    },
    /// The link is closed.
    Closed,
}

impl Link {
    /// Creates a link to this peer, and the receiver of the peer's pushes. The link connects at its first use, or when
    /// [`Link::connect`] is called.
    ///
    /// A caller that does not need pushes drops the [`Hearing`]. The link must be created within a tokio runtime; its
    /// task runs there.
    pub fn new(key: &Key, remote: Remote, options: LinkOptions) -> Result<(Self, Hearing), Error> {
        options.check()?;
        let runtime = Handle::try_current().map_err(|why| Error::Options(why.to_string()))?;
        let tls = crate::tls::client(key, remote.key).map_err(|why| Error::Options(why.to_string()))?;
        let (state, seen) = watch::channel(State::AtRest);
        let (sounds, hearing) = hearing::hearing(&options.limits);
        let wanted = Arc::new(Notify::new());
        let (closing, dropped) = (CancellationToken::new(), CancellationToken::new());
        let call_timeout = options.call_timeout;
        let driver =
            Driver::new(tls, remote.clone(), options, state, wanted.clone(), closing.clone(), sounds);
        runtime.spawn(dropped.clone().run_until_cancelled_owned(driver.run()));
        let shared =
            Shared { remote, call_timeout, state: seen, wanted, closing, _dropped: dropped.drop_guard() };
        Ok((Self { shared: Arc::new(shared) }, hearing))
    }

    /// Returns the target of the link.
    pub fn remote(&self) -> &Remote {
        &self.shared.remote
    }

    /// Returns the state of the link.
    pub fn status(&self) -> Status {
        match &*self.shared.state.borrow() {
            State::AtRest => Status::AtRest,
            State::Connecting => Status::Connecting,
            State::Connected(_) => Status::Connected,
            State::Waiting(waiting) => waiting.status(),
            State::Closed => Status::Closed,
        }
    }

    /// Connects now. Returns at once if the link is connected, and with the last error if it waits after a failure.
    /// Cancel-safe: the link continues to connect.
    pub async fn connect(&self) -> Result<(), Error> {
        self.live().await.map(drop)
    }

    /// Sends a request to the peer and waits for the reply for at most the `call_timeout` of the options.
    pub async fn call(&self, request: Bytes) -> Result<Bytes, Error> {
        self.call_within(self.shared.call_timeout, request).await
    }

    /// Sends a request to the peer and waits for the reply for at most `limit`, connecting included.
    ///
    /// Concurrent calls may overtake each other, and so may their replies. Dropping the future abandons the call; the
    /// peer may execute it all the same.
    pub async fn call_within(&self, limit: Duration, request: Bytes) -> Result<Bytes, Error> {
        let started = clock::now();
        let outcome = self.called(started, limit, &request).await;
        metrics::called(&outcome, clock::since(started));
        outcome
    }

    /// Sends the peer a message without a reply. Waits for room in the queue for at most the `call_timeout` of the
    /// options.
    ///
    /// Success means that the message is queued: if the connection is lost, so is the message. Messages arrive in the
    /// order in which they were queued. If the future is dropped before it completes, the message is not queued.
    pub async fn tell(&self, message: Bytes) -> Result<(), Error> {
        let limit = self.shared.call_timeout;
        let telling = async {
            loop {
                let live = self.live().await?;
                match live.tell(&message).await {
                    Ok(()) => return Ok(()),
                    Err(Unanswered::TooLarge { size, limit }) => return Err(Error::TooLarge { size, limit }),
                    Err(_) => self.past(&live).await?,
                }
            }
        };
        clock::within(limit, telling).await.unwrap_or(Err(Error::Deadline { waited: limit, sent: false }))
    }

    /// Closes the link permanently. Calls in flight still get their replies until their deadlines; new calls are
    /// rejected. Once polled, the future may be dropped: the link closes all the same.
    pub async fn close(&self) {
        self.shared.closing.cancel();
        let mut state = self.shared.state.clone();
        // An error means that the driver task has ended, so the link is closed already.
        drop(state.wait_for(|state| matches!(state, State::Closed)).await);
    }

    async fn called(&self, started: Instant, limit: Duration, request: &Bytes) -> Result<Bytes, Error> {
        let deadline = clock::after(limit);
        loop {
            let late = |sent| Error::Deadline { waited: clock::since(started), sent };
            let live = clock::by(deadline, self.live()).await.map_err(|_| late(false))??;
            match live.call(deadline, request).await {
                Ok(answer) => return answer.map_err(Error::Fault),
                Err(Unanswered::Deadline { sent }) => return Err(late(sent)),
                Err(Unanswered::TooLarge { size, limit }) => return Err(Error::TooLarge { size, limit }),
                Err(Unanswered::Lost) => return Err(Error::Lost { why: live.why_lost() }),
                // The request was not sent, so it may go over the next connection. If there is none, the call fails.
                Err(Unanswered::NotSent) => {
                    clock::by(deadline, self.past(&live)).await.map_err(|_| late(false))??;
                }
            }
        }
    }

    /// Returns the current connection, or waits for one that is being opened.
    async fn live(&self) -> Result<Arc<Live>, Error> {
        if let State::Connected(live) = &*self.shared.state.borrow() {
            return Ok(live.clone());
        }
        let mut state = self.shared.state.clone();
        loop {
            match &*state.borrow_and_update() {
                State::Connected(live) => return Ok(live.clone()),
                State::Waiting(waiting) => return Err(waiting.error(&self.shared.remote)),
                State::Closed => return Err(Error::Closed),
                State::AtRest if self.shared.closing.is_cancelled() => return Err(Error::Closed),
                State::AtRest => self.shared.wanted.notify_one(),
                State::Connecting => {}
            }
            state.changed().await.map_err(|_| Error::Closed)?;
        }
    }

    /// Waits until the driver has noticed the end of this connection.
    async fn past(&self, over: &Arc<Live>) -> Result<(), Error> {
        let is_past = |state: &State| !matches!(state, State::Connected(live) if Arc::ptr_eq(live, over));
        let mut state = self.shared.state.clone();
        state.wait_for(is_past).await.map(drop).map_err(|_| Error::Closed)
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("remote", &self.shared.remote).field("status", &self.status()).finish()
    }
}

//! A link to one peer.

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

/// Whom a link is to: the key decides, the address is where to look.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Remote {
    /// Who it is.
    pub key: PublicKey,
    /// Where it listens, such as `host:port`.
    pub address: String,
}

/// A handle to one peer, which stays valid whatever happens to the connection.
///
/// The first use connects; from then on the link stays connected, and when the connection is lost it connects again
/// when its policy says. Meanwhile calls fail at once, with an error that says for how long it has been so and when the
/// next try is. Clones share the connection; when the last is dropped, it is closed.
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

/// How a link is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// It was not used yet, or its policy has given up: the next use tries.
    AtRest,
    /// It is connecting.
    Connecting,
    /// It is connected.
    Connected,
    /// It waits before it tries again.
    Waiting {
        /// For how long the peer has been unreachable.
        since: Duration,
        /// In how long the next try is; none if its policy has given up and the next use after a while tries.
        next_try: Option<Duration>,
        /// What went wrong the last time.
        why: String,
    },
    /// It was closed.
    Closed,
}

impl Link {
    /// A link to this peer, and what the peer pushes. It connects when it is first used, or told to.
    ///
    /// Whoever does not want to hear pushes drops the [`Hearing`]. It must be made within a tokio runtime, on which it
    /// lives.
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

    /// Whom it is to.
    pub fn remote(&self) -> &Remote {
        &self.shared.remote
    }

    /// How it is doing.
    pub fn status(&self) -> Status {
        match &*self.shared.state.borrow() {
            State::AtRest => Status::AtRest,
            State::Connecting => Status::Connecting,
            State::Connected(_) => Status::Connected,
            State::Waiting(waiting) => waiting.status(),
            State::Closed => Status::Closed,
        }
    }

    /// Connects now, unless it is connected, or waits after a failure: then it says so.
    pub async fn connect(&self) -> Result<(), Error> {
        self.live().await.map(drop)
    }

    /// Asks the peer, and waits for the reply for as long as the options say.
    pub async fn call(&self, request: Bytes) -> Result<Bytes, Error> {
        self.call_within(self.shared.call_timeout, request).await
    }

    /// Asks the peer, and waits for the reply no longer than this, connecting included.
    ///
    /// Calls may overtake each other, and so may their replies. Dropping the future forgets the call; the peer may
    /// carry it out all the same.
    pub async fn call_within(&self, limit: Duration, request: Bytes) -> Result<Bytes, Error> {
        let started = clock::now();
        let outcome = self.called(started, limit, &request).await;
        metrics::called(&outcome, clock::since(started));
        outcome
    }

    /// Sends the peer a message that wants no reply, when there is room for it in the queue.
    ///
    /// Success means that it is queued: it is lost if the connection is. Messages arrive in the order they were queued.
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

    /// Closes the link for good. Calls under way get their replies, within their time; new ones are refused.
    pub async fn close(&self) {
        self.shared.closing.cancel();
        let mut state = self.shared.state.clone();
        // An error means that there is nobody left who could be closing it.
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
                // It was not sent, so it may go over the next connection, or fail for want of one.
                Err(Unanswered::NotSent) => {
                    clock::by(deadline, self.past(&live)).await.map_err(|_| late(false))??;
                }
            }
        }
    }

    /// The connection, if there is one or is about to be.
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

    /// Waits until the link has noticed that this connection is over.
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

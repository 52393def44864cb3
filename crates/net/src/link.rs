//! A link to one peer: the client's end of a connection.

mod calls;
mod driver;
mod message_sender;
mod pushes;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::clock::Instant;
use crate::{Error, InvalidPublicKey, LinkOptions, PublicKey, SecretKey, clock, decode, encode, metrics};
use calls::{CallError, Connection};
use driver::{Driver, LinkState};

pub use message_sender::{EncodedSize, MessageSender, SenderLimits};
pub use pushes::{PushEvent, PushReceiver};

/// The key and the address of a peer, as text `KEY@HOST:PORT`. The key identifies the peer; the address only tells where
/// to connect.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct PeerAddress {
    /// The peer's public key.
    pub key: PublicKey,
    /// The address that the peer listens at, such as `host:port`.
    pub address: String,
}

/// The reason why a text is not a [`PeerAddress`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text:?} is not a peer address, which has the form KEY@HOST:PORT: {why}")]
pub struct InvalidPeerAddress {
    text: String,
    why: String,
}

impl FromStr for PeerAddress {
    type Err = InvalidPeerAddress;

    fn from_str(text: &str) -> Result<Self, InvalidPeerAddress> {
        let invalid = |why: String| InvalidPeerAddress { text: text.to_owned(), why };
        let (key, address) = text.split_once('@').ok_or_else(|| invalid("it contains no @".to_owned()))?;
        let key = key.parse().map_err(|error: InvalidPublicKey| invalid(error.to_string()))?;
        let port = address.rsplit_once(':').map(|(host, port)| (host, port.parse::<u16>()));
        match port {
            Some((host, Ok(1..))) if !host.is_empty() => Ok(Self { key, address: address.to_owned() }),
            _ => Err(invalid("a host, a colon and a port from 1 to 65535 must follow the @".to_owned())),
        }
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.key, self.address)
    }
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
    remote: PeerAddress,
    call_timeout: Duration,
    state: watch::Receiver<LinkState>,
    wanted: Arc<Notify>,
    closing: CancellationToken,
    _dropped: DropGuard,
}

/// The state of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkStatus {
    /// The link has not been used yet, or its policy has given up. The next use connects.
    Idle,
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
        next_attempt: Option<Duration>,
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
    /// A caller that does not need pushes drops the [`PushReceiver`]. The link must be created within a tokio runtime; its
    /// task runs there.
    pub fn new(
        key: &SecretKey,
        remote: PeerAddress,
        options: LinkOptions,
    ) -> Result<(Self, PushReceiver), Error> {
        options.check()?;
        let runtime = Handle::try_current().map_err(|why| Error::Options(why.to_string()))?;
        let tls = crate::tls::client(key, remote.key).map_err(|why| Error::Options(why.to_string()))?;
        let (state, seen) = watch::channel(LinkState::Idle);
        let (push_sender, pushes) = pushes::push_queue(&options.limits);
        let wanted = Arc::new(Notify::new());
        let (closing, dropped) = (CancellationToken::new(), CancellationToken::new());
        let call_timeout = options.call_timeout;
        let driver =
            Driver::new(tls, remote.clone(), options, state, wanted.clone(), closing.clone(), push_sender);
        runtime.spawn(dropped.clone().run_until_cancelled_owned(driver.run()));
        let shared =
            Shared { remote, call_timeout, state: seen, wanted, closing, _dropped: dropped.drop_guard() };
        Ok((Self { shared: Arc::new(shared) }, pushes))
    }

    /// Returns the target of the link.
    pub fn peer(&self) -> &PeerAddress {
        &self.shared.remote
    }

    /// Returns the state of the link.
    pub fn status(&self) -> LinkStatus {
        match &*self.shared.state.borrow() {
            LinkState::Idle => LinkStatus::Idle,
            LinkState::Connecting => LinkStatus::Connecting,
            LinkState::Connected(_) => LinkStatus::Connected,
            LinkState::Waiting(waiting) => waiting.status(),
            LinkState::Closed => LinkStatus::Closed,
        }
    }

    /// Returns the version of the role that both sides use on the current connection; `None` without a connection.
    pub fn role_version(&self) -> Option<u16> {
        match &*self.shared.state.borrow() {
            LinkState::Connected(connection) => Some(connection.role_version()),
            _ => None,
        }
    }

    /// Connects now. Returns at once if the link is connected, and with the last error if it waits after a failure.
    /// Cancel-safe: the link continues to connect.
    pub async fn connect(&self) -> Result<(), Error> {
        self.connection().await.map(drop)
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
    pub async fn send(&self, message: Bytes) -> Result<(), Error> {
        let limit = self.shared.call_timeout;
        let sending = async {
            loop {
                let connection = self.connection().await?;
                match connection.send(&message).await {
                    Ok(()) => return Ok(()),
                    Err(CallError::TooLarge { size, limit }) => return Err(Error::TooLarge { size, limit }),
                    Err(_) => self.wait_past(&connection).await?,
                }
            }
        };
        clock::within(limit, sending).await.unwrap_or(Err(Error::Deadline { waited: limit, is_sent: false }))
    }

    /// Closes the link permanently. Calls in flight still get their replies until their deadlines; new calls are
    /// rejected. Once polled, the future may be dropped: the link closes all the same.
    pub async fn close(&self) {
        self.shared.closing.cancel();
        let mut state = self.shared.state.clone();
        // An error means that the driver task has ended, so the link is closed already.
        drop(state.wait_for(|state| matches!(state, LinkState::Closed)).await);
    }

    /// Closes the link if no other handle exists.
    async fn close_last(self) {
        if Arc::strong_count(&self.shared) == 1 {
            self.close().await;
        }
    }

    async fn called(&self, started: Instant, limit: Duration, request: &Bytes) -> Result<Bytes, Error> {
        let deadline = clock::after(limit);
        loop {
            let late = |is_sent| Error::Deadline { waited: clock::since(started), is_sent };
            let connection = clock::by(deadline, self.connection()).await.map_err(|_| late(false))??;
            match connection.call(deadline, request).await {
                Ok(answer) => return answer.map_err(Error::Handler),
                Err(CallError::Deadline { is_sent }) => return Err(late(is_sent)),
                Err(CallError::TooLarge { size, limit }) => return Err(Error::TooLarge { size, limit }),
                Err(CallError::Lost) => return Err(Error::Lost { source: connection.why_lost() }),
                // The request was not sent, so it may go over the next connection. If there is none, the call fails.
                Err(CallError::NotSent) => {
                    clock::by(deadline, self.wait_past(&connection)).await.map_err(|_| late(false))??;
                }
            }
        }
    }

    /// Returns the current connection, or waits for one that is being opened.
    async fn connection(&self) -> Result<Arc<Connection>, Error> {
        if let LinkState::Connected(connection) = &*self.shared.state.borrow() {
            return Ok(connection.clone());
        }
        let mut state = self.shared.state.clone();
        loop {
            match &*state.borrow_and_update() {
                LinkState::Connected(connection) => return Ok(connection.clone()),
                LinkState::Waiting(waiting) => return Err(waiting.error(&self.shared.remote)),
                LinkState::Closed => return Err(Error::Closed),
                LinkState::Idle if self.shared.closing.is_cancelled() => return Err(Error::Closed),
                LinkState::Idle => self.shared.wanted.notify_one(),
                LinkState::Connecting => {}
            }
            state.changed().await.map_err(|_| Error::Closed)?;
        }
    }

    /// Waits until the driver has noticed the end of this connection.
    async fn wait_past(&self, over: &Arc<Connection>) -> Result<(), Error> {
        let is_past = |state: &LinkState| !matches!(state, LinkState::Connected(connection) if Arc::ptr_eq(connection, over));
        let mut state = self.shared.state.clone();
        state.wait_for(is_past).await.map(drop).map_err(|_| Error::Closed)
    }
}

impl Link {
    /// [`Link::call`] with typed values.
    pub async fn call_value<A: DeserializeOwned>(&self, question: &impl Serialize) -> Result<A, Error> {
        decode(&self.call(encode(question)?).await?)
    }

    /// [`Link::call_within`] with typed values.
    pub async fn call_value_within<A: DeserializeOwned>(
        &self,
        limit: Duration,
        question: &impl Serialize,
    ) -> Result<A, Error> {
        decode(&self.call_within(limit, encode(question)?).await?)
    }

    /// [`Link::send`] with a typed value.
    pub async fn send_value(&self, message: &impl Serialize) -> Result<(), Error> {
        self.send(encode(message)?).await
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("remote", &self.shared.remote).field("status", &self.status()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_address_round_trips_and_an_invalid_one_names_the_rule() {
        let key = SecretKey::from_secret(&[7; 32]).public();
        let text = format!("{key}@host:7878");
        let address: PeerAddress = text.parse().unwrap();
        assert_eq!((address.key, address.address.as_str(), address.to_string()), (key, "host:7878", text));
        let why = |text: &str| text.parse::<PeerAddress>().unwrap_err().to_string();
        assert!(why("host:7878").contains("it contains no @"));
        assert!(why("abc@host:7878").contains("not a public key"));
        for address in ["", "host", ":7878", "host:", "host:0", "host:65536"] {
            assert!(why(&format!("{key}@{address}")).contains("a port from 1 to 65535"), "{address}");
        }
    }
}

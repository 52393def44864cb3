//! Admission: accepts connections, performs the handshake, checks the allow list, and refuses with a reason.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::AsyncWriteExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Handler;
use super::answer::Visit;
use super::guests::{Guests, Seat};
use super::peer::Arrival;
use crate::connection::linger;
use crate::transport::{Listen, Stream};
use crate::wire::decoder::NoFrame;
use crate::wire::{Decoder, Frame, MAX_GREETING, MAX_ROLE, VERSION};
use crate::{PublicKey, Refusal, ServerOptions, clock, metrics, tls};

/// The pause after a failed accept. Mostly too many files are open, so an immediate retry would fail again.
const PAUSE: Duration = Duration::from_millis(50);

/// The time for which the server reads from a refused peer, so that the peer receives the reason.
const LAST_WORDS: Duration = Duration::from_millis(500);

pub(super) struct Door {
    pub(super) tls: Arc<ServerConfig>,
    pub(super) options: ServerOptions,
    pub(super) handler: Arc<dyn Handler>,
    pub(super) guests: Arc<Guests>,
    pub(super) tasks: TaskTracker,
    /// Cancelled when the server accepts no more connections.
    pub(super) leaving: CancellationToken,
    /// Cancelled when the server is dropped.
    pub(super) closed: CancellationToken,
}

/// An accepted connection.
pub(super) struct Entered {
    pub(super) stream: TlsStream<Box<dyn Stream>>,
    pub(super) decoder: Decoder,
    pub(super) arrival: Arrival,
    pub(super) seat: Seat,
}

/// A refused connection.
struct TurnedAway {
    /// The label value in the metrics.
    reason: &'static str,
    /// The stream and the reason to send over it, if the peer can still receive one.
    told: Option<(TlsStream<Box<dyn Stream>>, Refusal)>,
}

impl TurnedAway {
    fn silently(reason: &'static str) -> Self {
        Self { reason, told: None }
    }

    fn told(stream: TlsStream<Box<dyn Stream>>, reason: Refusal) -> Self {
        Self { reason: reason.name(), told: Some((stream, reason)) }
    }
}

impl Door {
    /// Accepts connections until the server leaves.
    pub(super) async fn keep(self: Arc<Self>, mut listener: Box<dyn Listen>) {
        let places = Arc::new(Semaphore::new(self.options.max_handshakes));
        loop {
            let next = async {
                // While all handshake permits are taken, new connections wait in the listener's backlog.
                let place = places.clone().acquire_owned().await;
                (place, listener.accept().await)
            };
            let next = tokio::select! {
                biased;
                () = self.leaving.cancelled() => return,
                () = self.closed.cancelled() => return,
                next = next => next,
            };
            match next {
                (Ok(place), Ok((stream, address))) => {
                    let visit = self.clone().visited(stream, address, place);
                    self.tasks.spawn(self.closed.clone().run_until_cancelled_owned(visit));
                }
                (_, Err(error)) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    clock::sleep(PAUSE).await;
                }
                (Err(_), _) => return,
            }
        }
    }

    async fn visited(
        self: Arc<Self>,
        stream: Box<dyn Stream>,
        address: SocketAddr,
        place: OwnedSemaphorePermit,
    ) {
        let limit = self.options.handshake_timeout;
        let entered = tokio::select! {
            biased;
            // A connection that is not accepted yet does not delay the shutdown.
            () = self.leaving.cancelled() => Err(TurnedAway::silently(Refusal::Leaving.name())),
            entered = clock::within(limit, self.shake_hands(stream, address)) => {
                entered.unwrap_or(Err(TurnedAway::silently("timeout")))
            }
        };
        match entered {
            Ok(entered) => {
                drop(place);
                Visit::new(&self, entered).run().await;
            }
            Err(TurnedAway { reason, told }) => {
                tracing::debug!(%address, reason, "refused");
                metrics::refused(reason);
                if let Some((stream, reason)) = told {
                    say_why(stream, reason).await;
                }
                drop(place);
            }
        }
    }

    async fn shake_hands(&self, stream: Box<dyn Stream>, address: SocketAddr) -> Result<Entered, TurnedAway> {
        let accepting = TlsAcceptor::from(self.tls.clone()).accept(stream);
        let mut stream = accepting.await.map_err(|_| TurnedAway::silently("tls"))?;
        let key = tls::proved(stream.get_ref().1.peer_certificates()).ok_or(TurnedAway::silently("tls"))?;
        let seat = match self.admit(key) {
            Ok(seat) => seat,
            Err(reason) => return Err(TurnedAway::told(stream, reason)),
        };
        let mut decoder = Decoder::new(MAX_GREETING);
        let hello = decoder.next(&mut stream).await;
        let body = match hello {
            Ok(body) => body,
            Err(NoFrame::Malformed(malformed)) => {
                metrics::malformed(malformed);
                return Err(TurnedAway::told(stream, Refusal::Malformed));
            }
            Err(NoFrame::End | NoFrame::Failed(_)) => return Err(TurnedAway::silently("gone")),
        };
        match self.hear(&body) {
            Ok((role, terms)) => {
                let arrival = Arrival { key, role, address, terms };
                decoder.set_limit(self.options.limits.max_frame);
                let welcome =
                    Frame::Welcome { version: VERSION, terms: self.options.limits.terms() }.to_bytes();
                let said = async {
                    stream.write_all(&welcome).await?;
                    stream.flush().await
                };
                said.await.map_err(|_| TurnedAway::silently("gone"))?;
                Ok(Entered { stream, decoder, arrival, seat })
            }
            Err(reason) => Err(TurnedAway::told(stream, reason)),
        }
    }

    /// Checks the key of a peer before any of its frames is read.
    fn admit(&self, key: PublicKey) -> Result<Seat, Refusal> {
        if !self.options.allow.allows(&key) {
            return Err(Refusal::NotAllowed);
        }
        self.guests.seat(key)
    }

    fn hear(&self, body: &[u8]) -> Result<(String, crate::wire::Terms), Refusal> {
        match Frame::read(body) {
            Ok(Frame::Hello { oldest, newest, .. }) if !(oldest..=newest).contains(&VERSION) => {
                Err(Refusal::Version)
            }
            Ok(Frame::Hello { role, terms, .. }) => {
                let roles = &self.options.roles;
                let is_known = roles.is_empty() || roles.iter().any(|served| served == role);
                let is_served = is_known && role.len() <= MAX_ROLE;
                if is_served { Ok((role.to_owned(), terms)) } else { Err(Refusal::Role) }
            }
            Ok(_) => {
                metrics::malformed(crate::wire::Malformed::OutOfTurn);
                Err(Refusal::Malformed)
            }
            Err(malformed) => {
                metrics::malformed(malformed);
                Err(Refusal::Malformed)
            }
        }
    }
}

async fn say_why(mut stream: TlsStream<Box<dyn Stream>>, reason: Refusal) {
    let bye = Frame::Bye { reason }.to_bytes();
    let saying = async {
        stream.write_all(&bye).await?;
        stream.shutdown().await?;
        linger(&mut stream).await;
        std::io::Result::Ok(())
    };
    // The outcome does not matter: the peer may be gone.
    drop(clock::within(LAST_WORDS, saying).await);
}

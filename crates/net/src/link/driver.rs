//! Keeps a link connected: connects, serves the connection until it ends, and waits as the policy says.
//!
//! [`open`] performs TCP, TLS, hello and welcome. [`ReconnectState`] is the pure history from which the policy decides
//! when the link connects again. [`Driver`] runs both in one task.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use futures_util::FutureExt;
use holdoff_policy::{Attempt, Decision, Failure, Policy, SoFar};
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWriteExt};
use tokio::sync::{Notify, watch};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use super::calls::Connection;
use super::pushes::PushSender;
use super::{LinkStatus, PeerAddress};
use crate::clock::{self, Instant};
use crate::connection::{self, CloseRequest, ConnectionEnd, FrameReader, FrameWriter, Outbox};
use crate::metrics::{self, Side};
use crate::queue::queue;
use crate::transport::Stream;
use crate::wire::{AnnouncedLimits, Decoder, Frame, MAX_HANDSHAKE_FRAME, Malformed, NoFrame, VERSION};
use crate::{CloseReason, Error, HandlerError, LinkOptions, LinkRole, PublicKey, tls};

/// A connection that lasted at least this long resets the history of failures.
const STEADY: Duration = Duration::from_secs(5);

/// The shortest delay before a link whose policy has given up connects again on use.
const MIN_IDLE: Duration = Duration::from_secs(1);

/// The state of the link as callers see it.
#[derive(Clone, Debug)]
pub(super) enum LinkState {
    /// The link is not in use: it has never been used, or its policy has given up.
    Idle,
    Connecting,
    Connected(Arc<Connection>),
    Waiting(Backoff),
    Closed,
}

/// The time between a failure and the next attempt.
#[derive(Clone, Debug)]
pub(super) struct Backoff {
    since: Instant,
    /// `None` if the next attempt waits until the link is used.
    next_attempt: Option<Instant>,
    cause: Arc<DisconnectCause>,
}

impl Backoff {
    /// Returns the error for a call made while the link waits.
    pub(super) fn error(&self, remote: &PeerAddress) -> Error {
        let next_attempt = self.next_attempt.map(clock::until);
        match &*self.cause {
            DisconnectCause::WrongKey(shown) => {
                let (address, expected) = (remote.address.clone(), remote.key);
                Error::WrongKey { address, expected, shown: *shown, next_attempt }
            }
            DisconnectCause::Refused(reason) if !reason.is_transient() => {
                Error::Refused { peer: remote.key, reason: *reason, next_attempt }
            }
            DisconnectCause::Incompatible { .. } => {
                Error::Incompatible { peer: remote.key, source: self.cause.clone(), next_attempt }
            }
            _ => {
                let (since, source) = (clock::since(self.since), self.cause.clone());
                Error::Unreachable { peer: remote.key, since, next_attempt, source }
            }
        }
    }

    pub(super) fn status(&self) -> LinkStatus {
        let next_attempt = self.next_attempt.map(clock::until);
        LinkStatus::Waiting { since: clock::since(self.since), next_attempt, why: self.cause.to_string() }
    }
}

pub(super) struct Driver {
    tls: Arc<ClientConfig>,
    remote: PeerAddress,
    options: LinkOptions,
    state: watch::Sender<LinkState>,
    wanted: Arc<Notify>,
    closing: CancellationToken,
    push_sender: PushSender,
    reconnect: ReconnectState,
    unreachable_since: Option<Instant>,
    rolls: Rng,
}

impl Driver {
    pub(super) fn new(
        tls: Arc<ClientConfig>,
        remote: PeerAddress,
        options: LinkOptions,
        state: watch::Sender<LinkState>,
        wanted: Arc<Notify>,
        closing: CancellationToken,
        push_sender: PushSender,
    ) -> Self {
        let rolls = clock::rolls(options.seed);
        let (reconnect, unreachable_since) = (ReconnectState::default(), None);
        Self {
            tls,
            remote,
            options,
            state,
            wanted,
            closing,
            push_sender,
            reconnect,
            unreachable_since,
            rolls,
        }
    }

    pub(super) async fn run(mut self) {
        let closing = self.closing.clone();
        let mut is_wanted = self.wait_until_wanted().await;
        while is_wanted {
            self.state.send_replace(LinkState::Connecting);
            let opening = open(self.tls.clone(), &self.remote, &self.options);
            let opened = tokio::select! {
                biased;
                () = closing.cancelled() => break,
                opened = opening => opened,
            };
            let cause = match opened {
                Ok(opened) => self.serve(opened).await,
                Err(cause) => {
                    metrics::connected(cause.name());
                    cause
                }
            };
            is_wanted = self.back_off(cause).await;
        }
        self.state.send_replace(LinkState::Closed);
    }

    /// Waits for the first use of the link and returns `true`; returns `false` if the link is closed first.
    async fn wait_until_wanted(&self) -> bool {
        tokio::select! {
            biased;
            () = self.closing.cancelled() => false,
            () = self.wanted.notified() => true,
        }
    }

    /// Waits before the next attempt. Returns `false` if the link was closed.
    async fn back_off(&mut self, cause: DisconnectCause) -> bool {
        if self.closing.is_cancelled() {
            return false;
        }
        let since = *self.unreachable_since.get_or_insert_with(clock::now);
        let floor = (!cause.is_transient()).then_some(self.options.slow_retry);
        let delay = self.reconnect.attempt_failed(
            &self.options.policy,
            clock::since(since),
            floor,
            self.rolls.u32(..),
        );
        metrics::waits(delay.wait);
        let (peer, wait_ms) =
            (self.remote.key.short(), u64::try_from(delay.wait.as_millis()).unwrap_or(u64::MAX));
        tracing::debug!(
            peer,
            reason = cause.name(),
            wait_ms,
            on_demand = delay.on_demand,
            "failed to connect"
        );
        let until = clock::after(delay.wait);
        let next_attempt = (!delay.on_demand).then_some(until);
        self.state.send_replace(LinkState::Waiting(Backoff { since, next_attempt, cause: Arc::new(cause) }));
        if !delay.wait.is_zero() {
            tokio::select! {
                biased;
                () = self.closing.cancelled() => return false,
                () = clock::sleep_until(until) => {}
            }
        }
        if !delay.on_demand {
            return true;
        }
        // A use from before the delay does not count as a use after it.
        let _ = self.wanted.notified().now_or_never();
        self.state.send_replace(LinkState::Idle);
        self.wait_until_wanted().await
    }

    /// Serves a connection until it ends, and returns the cause.
    async fn serve(&mut self, opened: OpenedConnection) -> DisconnectCause {
        metrics::connected("connected");
        let (_open, began) = (metrics::opened(Side::Link), clock::now());
        let peer = self.remote.key.short();
        tracing::debug!(peer, "connected");
        self.unreachable_since = None;
        self.push_sender.connected();
        let limits = &self.options.limits;
        let (sender, receiver) = queue(limits.max_queued, limits.max_queued_bytes);
        let connection = Arc::new(Connection::new(sender, limits, opened.theirs, opened.role_version));
        self.state.send_replace(LinkState::Connected(connection.clone()));

        let (read, write) = tokio::io::split(opened.stream);
        let reader = FrameReader::new(read, opened.decoder, limits.idle_timeout);
        let close_request = CloseRequest::default();
        let writer = FrameWriter {
            stream: write,
            outbox: Outbox::new(receiver, None),
            theirs: opened.theirs,
            stall: limits.idle_timeout,
            leaving: CancellationToken::new(),
            close_request: close_request.clone(),
        };
        let departing = CancellationToken::new();
        let reading = read_all(reader, &connection, &mut self.push_sender, &departing);
        let leave = leave(&connection, &departing, &self.closing, &self.state, &close_request);
        let (ended, closing) = tokio::select! {
            biased;
            never = leave => match never {},
            over = connection::run(reading, writer) => over,
        };
        let ended = Arc::new(ended);
        let cause = match &*ended {
            _ if departing.is_cancelled() => DisconnectCause::Refused(CloseReason::ShuttingDown),
            ConnectionEnd::ClosedByPeer(reason) => DisconnectCause::Refused(*reason),
            _ => DisconnectCause::Ended(ended.clone()),
        };
        tracing::debug!(peer, why = %ended, "disconnected");
        connection.close(ended);
        // Callers get the outcome now; the closing frame is sent in the background.
        closing.map(tokio::spawn);
        self.reconnect.connection_lasted(clock::since(began));
        cause
    }
}

/// Closes the connection in order once either side wants to leave: no new request goes out, requests in flight are
/// answered, then the connection is closed.
async fn leave(
    connection: &Connection,
    departing: &CancellationToken,
    closing: &CancellationToken,
    state: &watch::Sender<LinkState>,
    close_request: &CloseRequest,
) -> Infallible {
    let next = tokio::select! {
        biased;
        () = closing.cancelled() => LinkState::Closed,
        () = departing.cancelled() => {
            let now = clock::now();
            let cause = Arc::new(DisconnectCause::Refused(CloseReason::ShuttingDown));
            LinkState::Waiting(Backoff { since: now, next_attempt: Some(now), cause })
        }
    };
    // `Link::close` waits for `LinkState::Closed`, so the driver publishes that state only after the connection has ended.
    if !matches!(next, LinkState::Closed) {
        state.send_replace(next);
    }
    connection.drained().await;
    close_request.request(CloseReason::ShuttingDown);
    std::future::pending().await
}

async fn read_all<R: AsyncRead + Unpin>(
    mut reader: FrameReader<R>,
    connection: &Connection,
    push_sender: &mut PushSender,
    departing: &CancellationToken,
) -> (ConnectionEnd, FrameReader<R>) {
    loop {
        match read_one(&mut reader, connection, push_sender, departing).await {
            Ok(()) => {}
            Err(ended) => return (ended, reader),
        }
    }
}

async fn read_one<R: AsyncRead + Unpin>(
    reader: &mut FrameReader<R>,
    connection: &Connection,
    push_sender: &mut PushSender,
    departing: &CancellationToken,
) -> Result<(), ConnectionEnd> {
    let body = reader.next().await?;
    match Frame::read(&body)? {
        Frame::Reply { id, payload } => connection.complete(id, Ok(payload.slice_of(&body))),
        Frame::Error { id, is_transient, message } => {
            connection.complete(id, Err(HandlerError { is_transient, message: message.to_owned() }));
        }
        Frame::Push { number, payload } => push_sender.pushed(number, payload.slice_of(&body)),
        Frame::KeepAlive => {}
        Frame::Close { reason: CloseReason::ShuttingDown } => departing.cancel(),
        Frame::Close { reason } => return Err(ConnectionEnd::ClosedByPeer(reason)),
        Frame::Hello { .. } | Frame::Welcome { .. } | Frame::Call { .. } | Frame::Message { .. } => {
            return Err(Malformed::Unexpected.into());
        }
    }
    Ok(())
}

/// The reason why there is no connection.
#[derive(Debug, thiserror::Error)]
enum DisconnectCause {
    /// The transport or TLS failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The connection was not open in time.
    #[error("no connection within {0:?}")]
    Timeout(Duration),
    /// The peer closed the connection instead of sending a welcome.
    #[error("the peer closed the connection without a reason")]
    ClosedEarly,
    /// The peer sent bytes that violate the protocol.
    #[error("{0}")]
    Malformed(#[from] Malformed),
    /// The peer sent another frame before its welcome.
    #[error("the first frame of the peer was not a welcome")]
    NotAWelcome,
    /// The connection was open and has ended.
    #[error("{0}")]
    Ended(#[source] Arc<ConnectionEnd>),
    /// The server showed this other key.
    #[error("the server at its address has the key {0}")]
    WrongKey(PublicKey),
    /// The peer refused the connection.
    #[error("{0}")]
    Refused(#[source] CloseReason),
    /// The peer's welcome names a version that this side does not speak.
    #[error(
        "the peer chose version {version} of the protocol and version {role_version} of the role, and this side speaks \
         version {VERSION} and {role}: upgrade the older side"
    )]
    Incompatible { version: u16, role_version: u16, role: LinkRole },
}

impl DisconnectCause {
    /// Returns whether a later attempt may succeed without an operator's intervention.
    fn is_transient(&self) -> bool {
        match self {
            Self::WrongKey(_) | Self::Incompatible { .. } => false,
            Self::Refused(reason) => reason.is_transient(),
            Self::Io(_)
            | Self::Timeout(_)
            | Self::ClosedEarly
            | Self::Malformed(_)
            | Self::NotAWelcome
            | Self::Ended(_) => true,
        }
    }

    /// Returns the label value used in metrics.
    fn name(&self) -> &'static str {
        match self {
            Self::WrongKey(_) => "wrong_key",
            Self::Refused(_) => "refused",
            Self::Incompatible { .. } => "incompatible",
            Self::Io(_)
            | Self::Timeout(_)
            | Self::ClosedEarly
            | Self::Malformed(_)
            | Self::NotAWelcome
            | Self::Ended(_) => "unreachable",
        }
    }
}

/// A connection on which the peer has sent its welcome.
struct OpenedConnection {
    stream: TlsStream<Box<dyn Stream>>,
    decoder: Decoder,
    theirs: AnnouncedLimits,
    role_version: u16,
}

async fn open(
    config: Arc<ClientConfig>,
    remote: &PeerAddress,
    options: &LinkOptions,
) -> Result<OpenedConnection, DisconnectCause> {
    let opening = async {
        let stream = options.transport.connect(&remote.address).await?;
        let connecting = TlsConnector::from(config).connect(tls::no_name(), stream);
        let stream = connecting.await.map_err(|error| match tls::shown(&error) {
            Some(shown) => DisconnectCause::WrongKey(shown),
            None => DisconnectCause::Io(error),
        })?;
        exchange_hello(stream, options).await
    };
    let limit = options.connect_timeout;
    let late = |_| Err(DisconnectCause::Timeout(limit));
    clock::within(limit, opening).await.unwrap_or_else(late)
}

/// Exchanges hello and welcome. In TLS 1.3 a client's handshake completes before the server has checked the client's
/// key: only the welcome proves that the server accepts the client.
async fn exchange_hello(
    mut stream: TlsStream<Box<dyn Stream>>,
    options: &LinkOptions,
) -> Result<OpenedConnection, DisconnectCause> {
    let terms = options.limits.terms();
    let role = options.role.offer();
    let hello = Frame::Hello { oldest: VERSION, newest: VERSION, role, terms }.to_bytes();
    // A server may refuse the client before the hello is written, so its answer is read even if the write failed.
    let written = async {
        stream.write_all(&hello).await?;
        stream.flush().await
    };
    let written = written.await;
    let mut decoder = Decoder::new(MAX_HANDSHAKE_FRAME);
    let body = decoder.next(&mut stream).await.map_err(|none| match (none, written) {
        (_, Err(error)) | (NoFrame::Failed(error), Ok(())) => DisconnectCause::Io(error),
        (NoFrame::Malformed(malformed), Ok(())) => DisconnectCause::Malformed(malformed),
        (NoFrame::End, Ok(())) => DisconnectCause::ClosedEarly,
    })?;
    match Frame::read(&body) {
        Ok(Frame::Welcome { version: VERSION, role_version, terms: theirs })
            if options.role.speaks(role_version) =>
        {
            decoder.set_limit(options.limits.max_frame);
            Ok(OpenedConnection { stream, decoder, theirs, role_version })
        }
        Ok(Frame::Welcome { version, role_version, .. }) => {
            Err(DisconnectCause::Incompatible { version, role_version, role: options.role.clone() })
        }
        Ok(Frame::Close { reason }) => Err(DisconnectCause::Refused(reason)),
        Ok(_) => Err(DisconnectCause::NotAWelcome),
        Err(malformed) => Err(malformed.into()),
    }
}

/// The failed attempts since the last steady connection.
#[derive(Clone, Debug, Default)]
struct ReconnectState {
    attempts: u32,
    last_delay: Duration,
}

/// The decision about the next attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ReconnectDelay {
    /// The time before the next attempt.
    wait: Duration,
    /// Whether the next attempt waits until the link is used, because the policy has given up.
    on_demand: bool,
}

impl ReconnectState {
    /// Records the end of a connection that lasted `lived`.
    fn connection_lasted(&mut self, lived: Duration) {
        if lived >= STEADY {
            *self = Self::default();
        }
    }

    /// Records a failed attempt or a lost connection, `elapsed` after the first of the series. `floor` is the shortest
    /// wait.
    fn attempt_failed(
        &mut self,
        policy: &Policy,
        elapsed: Duration,
        floor: Option<Duration>,
        roll: u32,
    ) -> ReconnectDelay {
        self.attempts = self.attempts.saturating_add(1);
        let failure =
            floor.map_or(Failure::transient(), |floor| Failure::transient().with_retry_after(floor));
        let so_far = SoFar {
            attempt: Attempt::new(self.attempts),
            elapsed,
            last_delay: self.last_delay,
            ..SoFar::default()
        };
        if let Decision::Retry { after } = policy.decide(&so_far, &failure, roll) {
            self.last_delay = after;
            return ReconnectDelay { wait: after, on_demand: false };
        }
        let wait = floor.unwrap_or(self.last_delay).max(MIN_IDLE);
        *self = Self::default();
        ReconnectDelay { wait, on_demand: true }
    }
}

#[cfg(test)]
mod tests {
    use holdoff_policy::{Growth, Jitter};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn policy(attempts: u32) -> Policy {
        Policy::builder(Growth::exponential(SECOND, 2.0))
            .jitter(Jitter::None)
            .cap(SECOND * 8)
            .attempts(attempts)
            .build()
            .unwrap()
    }

    fn waits(reconnect: &mut ReconnectState, policy: &Policy, times: usize) -> Vec<u64> {
        (0..times).map(|_| reconnect.attempt_failed(policy, SECOND, None, 0).wait.as_secs()).collect()
    }

    #[test]
    fn a_short_connection_does_not_reset_the_backoff() {
        let (mut reconnect, policy) = (ReconnectState::default(), policy(Policy::UNLIMITED));
        assert_eq!(waits(&mut reconnect, &policy, 3), [1, 2, 4]);
        reconnect.connection_lasted(SECOND);
        assert_eq!(waits(&mut reconnect, &policy, 2), [8, 8]);
        reconnect.connection_lasted(SECOND * 5);
        assert_eq!(waits(&mut reconnect, &policy, 2), [1, 2]);
    }

    #[test]
    fn after_the_policy_gives_up_the_backoff_starts_again_on_demand() {
        let (mut reconnect, policy) = (ReconnectState::default(), policy(3));
        assert_eq!(waits(&mut reconnect, &policy, 2), [1, 2]);
        let rest = reconnect.attempt_failed(&policy, SECOND, None, 0);
        assert_eq!(rest, ReconnectDelay { wait: SECOND * 2, on_demand: true });
        assert_eq!(waits(&mut reconnect, &policy, 1), [1]);
    }

    #[test]
    fn a_permanent_failure_waits_at_least_the_floor() {
        let (mut reconnect, policy) = (ReconnectState::default(), policy(Policy::UNLIMITED));
        let delay = reconnect.attempt_failed(&policy, SECOND, Some(SECOND * 30), 0);
        assert_eq!(delay, ReconnectDelay { wait: SECOND * 30, on_demand: false });
    }
}

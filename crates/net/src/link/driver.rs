//! Keeps a link connected: connects, serves the connection until it ends, waits as the policy says.

use std::convert::Infallible;
use std::sync::Arc;

use fastrand::Rng;
use futures_util::FutureExt;
use rustls::ClientConfig;
use tokio::io::AsyncRead;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::course::Course;
use super::hearing::Sounds;
use super::live::Live;
use super::open::{Cause, Opened, open};
use super::{Remote, Status};
use crate::clock::{self, Instant};
use crate::connection::{self, Cut, Ended, Outbox, Reader, Writer};
use crate::metrics::{self, Side};
use crate::queue::queue;
use crate::wire::{Frame, Malformed};
use crate::{Error, Fault, LinkOptions, Refusal};

/// The state of the link as callers see it.
#[derive(Clone, Debug)]
pub(super) enum State {
    /// The link is not in use: it has never been used, or its policy has given up.
    AtRest,
    Connecting,
    Connected(Arc<Live>),
    Waiting(Waiting),
    Closed,
}

/// The time between a failure and the next attempt.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    since: Instant,
    /// `None` if the next attempt waits until the link is used.
    next_try: Option<Instant>,
    cause: Arc<Cause>,
}

impl Waiting {
    /// Returns the error for a call made while the link waits.
    pub(super) fn error(&self, remote: &Remote) -> Error {
        let next_try = self.next_try.map(clock::until);
        match &*self.cause {
            Cause::WrongKey(shown) => {
                let (address, expected) = (remote.address.clone(), remote.key);
                Error::WrongKey { address, expected, shown: *shown, next_try }
            }
            Cause::Refused(reason) if !reason.is_transient() => {
                Error::Refused { peer: remote.key, reason: *reason, next_try }
            }
            cause => {
                let (since, why) = (clock::since(self.since), cause.why());
                Error::Unreachable { peer: remote.key, since, next_try, why }
            }
        }
    }

    pub(super) fn status(&self) -> Status {
        let next_try = self.next_try.map(clock::until);
        Status::Waiting { since: clock::since(self.since), next_try, why: self.cause.why() }
    }
}

pub(super) struct Driver {
    tls: Arc<ClientConfig>,
    remote: Remote,
    options: LinkOptions,
    state: watch::Sender<State>,
    wanted: Arc<Notify>,
    closing: CancellationToken,
    sounds: Sounds,
    course: Course,
    unreachable_since: Option<Instant>,
    rolls: Rng,
}

impl Driver {
    pub(super) fn new(
        tls: Arc<ClientConfig>,
        remote: Remote,
        options: LinkOptions,
        state: watch::Sender<State>,
        wanted: Arc<Notify>,
        closing: CancellationToken,
        sounds: Sounds,
    ) -> Self {
        let rolls = clock::rolls(options.seed);
        let (course, unreachable_since) = (Course::default(), None);
        Self { tls, remote, options, state, wanted, closing, sounds, course, unreachable_since, rolls }
    }

    pub(super) async fn run(mut self) {
        let closing = self.closing.clone();
        let mut is_wanted = self.wait_until_wanted().await;
        while is_wanted {
            self.state.send_replace(State::Connecting);
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
            is_wanted = self.pause(cause).await;
        }
        self.state.send_replace(State::Closed);
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
    async fn pause(&mut self, cause: Cause) -> bool {
        if self.closing.is_cancelled() {
            return false;
        }
        let since = *self.unreachable_since.get_or_insert_with(clock::now);
        let floor = (!cause.is_transient()).then_some(self.options.slow_retry);
        let pause = self.course.failed(&self.options.policy, clock::since(since), floor, self.rolls.u32(..));
        metrics::waits(pause.wait);
        let (peer, wait_ms) =
            (self.remote.key.short(), u64::try_from(pause.wait.as_millis()).unwrap_or(u64::MAX));
        tracing::debug!(peer, reason = cause.name(), wait_ms, on_demand = pause.on_demand, "not connected");
        let until = clock::after(pause.wait);
        let next_try = (!pause.on_demand).then_some(until);
        self.state.send_replace(State::Waiting(Waiting { since, next_try, cause: Arc::new(cause) }));
        if !pause.wait.is_zero() {
            tokio::select! {
                biased;
                () = self.closing.cancelled() => return false,
                () = clock::sleep_until(until) => {}
            }
        }
        if !pause.on_demand {
            return true;
        }
        // A use from before the pause does not count as a use after it.
        let _ = self.wanted.notified().now_or_never();
        self.state.send_replace(State::AtRest);
        self.wait_until_wanted().await
    }

    /// Serves a connection until it ends, and returns the cause.
    async fn serve(&mut self, opened: Opened) -> Cause {
        metrics::connected("connected");
        let (_open, began) = (metrics::opened(Side::Link), clock::now());
        let peer = self.remote.key.short();
        tracing::debug!(peer, "connected");
        self.unreachable_since = None;
        self.sounds.connected();
        let limits = &self.options.limits;
        let (sender, receiver) = queue(limits.max_queued, limits.max_queued_bytes);
        let live = Arc::new(Live::new(sender, limits, opened.theirs));
        self.state.send_replace(State::Connected(live.clone()));

        let (read, write) = tokio::io::split(opened.stream);
        let reader = Reader::new(read, opened.decoder, limits.idle_timeout);
        let cut = Cut::default();
        let writer = Writer {
            stream: write,
            outbox: Outbox::new(receiver, None),
            theirs: opened.theirs,
            stall: limits.idle_timeout,
            leaving: CancellationToken::new(),
            cut: cut.clone(),
        };
        let departing = CancellationToken::new();
        let reading = read_all(reader, &live, &mut self.sounds, &departing);
        let leave = leave(&live, &departing, &self.closing, &self.state, &cut);
        let (ended, farewell) = tokio::select! {
            biased;
            never = leave => match never {},
            over = connection::run(reading, writer) => over,
        };
        let cause = match &ended {
            _ if departing.is_cancelled() => Cause::Refused(Refusal::Leaving),
            Ended::Bye(reason) => Cause::Refused(*reason),
            ended => Cause::Trouble(ended.to_string()),
        };
        tracing::debug!(peer, why = %ended, "the connection is over");
        live.over(ended.to_string());
        // Callers get the outcome now; the closing frame is sent in the background.
        farewell.map(tokio::spawn);
        self.course.held(clock::since(began));
        cause
    }
}

/// Closes the connection in order once either side wants to leave: no new request goes out, requests in flight are
/// answered, then the connection is closed.
async fn leave(
    live: &Live,
    departing: &CancellationToken,
    closing: &CancellationToken,
    state: &watch::Sender<State>,
    cut: &Cut,
) -> Infallible {
    let next = tokio::select! {
        biased;
        () = closing.cancelled() => State::Closed,
        () = departing.cancelled() => {
            let now = clock::now();
            let cause = Arc::new(Cause::Refused(Refusal::Leaving));
            State::Waiting(Waiting { since: now, next_try: Some(now), cause })
        }
    };
    // `Link::close` waits for `State::Closed`, so the driver publishes that state only after the connection has ended.
    if !matches!(next, State::Closed) {
        state.send_replace(next);
    }
    live.drained().await;
    cut.cut(Refusal::Leaving);
    std::future::pending().await
}

async fn read_all<R: AsyncRead + Unpin>(
    mut reader: Reader<R>,
    live: &Live,
    sounds: &mut Sounds,
    departing: &CancellationToken,
) -> (Ended, Reader<R>) {
    loop {
        match read_one(&mut reader, live, sounds, departing).await {
            Ok(()) => {}
            Err(ended) => return (ended, reader),
        }
    }
}

async fn read_one<R: AsyncRead + Unpin>(
    reader: &mut Reader<R>,
    live: &Live,
    sounds: &mut Sounds,
    departing: &CancellationToken,
) -> Result<(), Ended> {
    let body = reader.next().await?;
    match Frame::read(&body)? {
        Frame::Reply { id, payload } => live.answered(id, Ok(payload.part_of(&body))),
        Frame::Fault { id, is_transient, message } => {
            live.answered(id, Err(Fault { is_transient, message: message.to_owned() }));
        }
        Frame::Push { number, payload } => sounds.pushed(number, payload.part_of(&body)),
        Frame::Alive => {}
        Frame::Bye { reason: Refusal::Leaving } => departing.cancel(),
        Frame::Bye { reason } => return Err(Ended::Bye(reason)),
        Frame::Hello { .. } | Frame::Welcome { .. } | Frame::Call { .. } | Frame::Tell { .. } => {
            return Err(Malformed::OutOfTurn.into());
        }
    }
    Ok(())
}

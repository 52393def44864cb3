//! What can be set, and within which bounds.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use holdoff_policy::{Beyond, Growth, Jitter, Policy, RetryAfter};

use crate::wire::{MAX_GREETING, MAX_ROLE, Terms};
use crate::{Allow, Error, Tcp, Transport};

/// What one connection may cost, on either side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The longest frame that is read, in bytes; a message may be a few bytes less. 1 MiB.
    pub max_frame: usize,
    /// How long nothing may be heard from the other side, or nothing be read by it, before it is given up. 30 s.
    ///
    /// Each side is told the other's, and shows three times as often that it is there.
    pub idle_timeout: Duration,
    /// How many calls may be under way at once. Further ones wait: at a link for a place, at a server unread. 256.
    pub max_in_flight: usize,
    /// How many messages may wait to be sent; pushes have a queue of their own, as long. 1024.
    pub max_queued: usize,
    /// How many bytes such a queue may have. 4 MiB.
    pub max_queued_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_frame: 1 << 20,
            idle_timeout: Duration::from_secs(30),
            max_in_flight: 256,
            max_queued: 1024,
            max_queued_bytes: 4 << 20,
        }
    }
}

impl Limits {
    pub(crate) fn terms(&self) -> Terms {
        Terms::new(self.max_frame, self.idle_timeout)
    }

    fn check(&self) -> Result<(), Error> {
        const LARGEST: usize = 1 << 28;
        const SHORTEST: Duration = Duration::from_millis(30);
        if !(MAX_GREETING..=LARGEST).contains(&self.max_frame) {
            return wrong(format!(
                "max_frame is {}: it must be from {MAX_GREETING} to {LARGEST}",
                self.max_frame
            ));
        }
        if self.idle_timeout < SHORTEST {
            return wrong(format!(
                "idle_timeout is {:?}: it must be at least {SHORTEST:?}",
                self.idle_timeout
            ));
        }
        let counts = [("max_in_flight", self.max_in_flight), ("max_queued", self.max_queued)];
        check_counts(&counts)?;
        check_counts(&[("max_queued_bytes", self.max_queued_bytes)])
    }
}

/// What a link may do.
#[derive(Clone)]
pub struct LinkOptions {
    /// What this side is to the server: a word of at most 64 bytes. Empty unless set.
    pub role: String,
    /// When to try again after a connection was lost or could not be made.
    ///
    /// Unless set, after a tenth of a second, then ever later up to 10 s, spread, without end. A policy that gives up
    /// leaves the link at rest, until it is used again.
    pub policy: Policy,
    /// How long to wait at least after the peer has shown another key, or has refused this side for good. 30 s.
    pub slow_retry: Duration,
    /// How long connecting may take, handshake and hello included. 10 s.
    pub connect_timeout: Duration,
    /// How long a call may take if it does not say. 10 s.
    pub call_timeout: Duration,
    /// What a connection may cost.
    pub limits: Limits,
    /// What carries the bytes.
    pub transport: Arc<dyn Transport>,
    /// Where the rolls for the policy come from; drawn unless set, for tests.
    pub seed: Option<u64>,
}

impl Default for LinkOptions {
    fn default() -> Self {
        Self {
            role: String::new(),
            policy: reconnect(),
            slow_retry: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(10),
            call_timeout: Duration::from_secs(10),
            limits: Limits::default(),
            transport: Arc::new(Tcp),
            seed: None,
        }
    }
}

impl LinkOptions {
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.role.len() > MAX_ROLE {
            return wrong(format!("the role {:?} is longer than {MAX_ROLE} bytes", self.role));
        }
        self.limits.check()
    }
}

impl fmt::Debug for LinkOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { role, slow_retry, connect_timeout, call_timeout, limits, seed, .. } = self;
        f.debug_struct("LinkOptions")
            .field("role", role)
            .field("slow_retry", slow_retry)
            .field("connect_timeout", connect_timeout)
            .field("call_timeout", call_timeout)
            .field("limits", limits)
            .field("seed", seed)
            .finish_non_exhaustive()
    }
}

/// The policy of links for which none is set.
fn reconnect() -> Policy {
    let rule = RetryAfter { spread: Duration::from_secs(5), beyond: Beyond::Wait, ..RetryAfter::default() };
    Policy::builder(Growth::exponential(Duration::from_millis(100), 2.0))
        .jitter(Jitter::Equal)
        .cap(Duration::from_secs(10))
        .retry_after(rule)
        .attempts(Policy::UNLIMITED)
        .build()
        .unwrap_or_default()
}

/// What a server may do.
#[derive(Clone)]
pub struct ServerOptions {
    /// Who may come in. Nobody unless set.
    pub allow: Allow,
    /// Which roles are served; all if empty.
    pub roles: Vec<String>,
    /// How many connections there may be. 1024.
    pub max_connections: usize,
    /// How many of them may have the same key. 4.
    pub max_connections_with_key: usize,
    /// How many may be shaking hands at once. Further ones wait unaccepted. 128.
    pub max_handshakes: usize,
    /// How long shaking hands may take, the hello included. 5 s.
    pub handshake_timeout: Duration,
    /// What a connection may cost.
    pub limits: Limits,
    /// What carries the bytes.
    pub transport: Arc<dyn Transport>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            allow: Allow::nobody(),
            roles: Vec::new(),
            max_connections: 1024,
            max_connections_with_key: 4,
            max_handshakes: 128,
            handshake_timeout: Duration::from_secs(5),
            limits: Limits::default(),
            transport: Arc::new(Tcp),
        }
    }
}

impl ServerOptions {
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_counts(&[
            ("max_connections", self.max_connections),
            ("max_connections_with_key", self.max_connections_with_key),
            ("max_handshakes", self.max_handshakes),
        ])?;
        self.limits.check()
    }
}

impl fmt::Debug for ServerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerOptions")
            .field("roles", &self.roles)
            .field("max_connections", &self.max_connections)
            .field("max_connections_with_key", &self.max_connections_with_key)
            .field("max_handshakes", &self.max_handshakes)
            .field("handshake_timeout", &self.handshake_timeout)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

fn check_counts(counts: &[(&str, usize)]) -> Result<(), Error> {
    const MOST: usize = 1 << 30;
    match counts.iter().find(|(_, count)| !(1..=MOST).contains(count)) {
        Some((name, count)) => wrong(format!("{name} is {count}: it must be from 1 to {MOST}")),
        None => Ok(()),
    }
}

fn wrong(why: String) -> Result<(), Error> {
    Err(Error::Options(why))
}

#[cfg(test)]
mod tests {
    use holdoff_policy::{Decision, Failure, SoFar};

    use super::*;

    #[test]
    fn links_try_again_without_end_and_slowly_when_they_are_asked_to() {
        let policy = reconnect();
        let wait = |tries, failure: &Failure, roll| policy.decide(&SoFar::after(tries), failure, roll);
        let plain = Failure::transient();
        assert_eq!(wait(1, &plain, u32::MAX), Decision::Retry { after: Duration::from_millis(100) });
        assert_eq!(wait(1_000_000, &plain, u32::MAX), Decision::Retry { after: Duration::from_secs(10) });
        let slow = plain.with_retry_after(Duration::from_secs(3600 * 24));
        assert!(wait(1, &slow, 0).delay() >= Some(Duration::from_secs(3600 * 24)));
    }

    #[test]
    fn what_cannot_work_is_said_at_once() {
        let link = |limits| LinkOptions { limits, ..LinkOptions::default() }.check();
        assert!(link(Limits::default()).is_ok());
        for limits in [
            Limits { max_frame: 100, ..Limits::default() },
            Limits { max_frame: usize::MAX, ..Limits::default() },
            Limits { idle_timeout: Duration::ZERO, ..Limits::default() },
            Limits { max_in_flight: 0, ..Limits::default() },
            Limits { max_queued: usize::MAX, ..Limits::default() },
        ] {
            assert!(matches!(link(limits), Err(Error::Options(_))));
        }
        assert!(LinkOptions { role: "r".repeat(65), ..LinkOptions::default() }.check().is_err());
        assert!(ServerOptions { max_handshakes: 0, ..ServerOptions::default() }.check().is_err());
        assert!(ServerOptions::default().check().is_ok());
    }
}

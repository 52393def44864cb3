//! The options of links and servers, their bounds, and the allow list of a server.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use holdoff_policy::{Beyond, Growth, Jitter, Policy, RetryAfter};

use crate::wire::{AnnouncedLimits, MAX_HANDSHAKE_FRAME};
use crate::{Error, LinkRole, PublicKey, Tcp, Transport};

/// The resource limits of one connection, on either side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionLimits {
    /// The longest frame that this side reads, in bytes; a message may be a few bytes shorter. 1 MiB.
    pub max_frame: usize,
    /// The idle timeout. If the next frame of the other side does not arrive within this time, or the other side does
    /// not read a write within it, this side gives up the connection. 30 s.
    ///
    /// Each side announces its timeout, and the other sends a keep-alive three times as often.
    pub idle_timeout: Duration,
    /// The number of calls in flight. Further calls wait: at a link for a permit, at a server unread. 256.
    pub max_in_flight: usize,
    /// The number of messages that may wait to be sent; pushes have a queue of their own of the same length. 1024.
    pub max_queued: usize,
    /// The size of such a queue in bytes. 4 MiB.
    pub max_queued_bytes: usize,
}

impl Default for ConnectionLimits {
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

impl ConnectionLimits {
    pub(crate) fn terms(&self) -> AnnouncedLimits {
        AnnouncedLimits::new(self.max_frame, self.idle_timeout)
    }

    fn check(&self) -> Result<(), Error> {
        const LARGEST: usize = 1 << 28;
        const SHORTEST: Duration = Duration::from_millis(30);
        if !(MAX_HANDSHAKE_FRAME..=LARGEST).contains(&self.max_frame) {
            return wrong(format!(
                "max_frame is {}: it must be from {MAX_HANDSHAKE_FRAME} to {LARGEST}",
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

/// The options of a link.
#[derive(Clone)]
pub struct LinkOptions {
    /// The role of this side towards the server. Its name has at most 64 bytes, and is empty by default.
    pub role: LinkRole,
    /// Decides when to connect again after a connection was lost or could not be made.
    ///
    /// By default the link waits a tenth of a second, then exponentially longer up to 10 s, with jitter and without a
    /// limit of attempts. If the policy gives up, the link rests until it is used again.
    pub policy: Policy,
    /// The shortest wait after the peer has shown another key, has refused this side permanently, or has chosen a version
    /// that this side does not speak. 30 s.
    pub slow_retry: Duration,
    /// The time limit for connecting, handshake and hello included. 10 s.
    pub connect_timeout: Duration,
    /// The time limit of a call that states none. 10 s.
    pub call_timeout: Duration,
    /// The resource limits of a connection.
    pub limits: ConnectionLimits,
    /// The transport.
    pub transport: Arc<dyn Transport>,
    /// The seed of the policy's rolls, for tests. Random by default.
    pub seed: Option<u64>,
}

impl Default for LinkOptions {
    fn default() -> Self {
        Self {
            role: LinkRole::default(),
            policy: reconnect(),
            slow_retry: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(10),
            call_timeout: Duration::from_secs(10),
            limits: ConnectionLimits::default(),
            transport: Arc::new(Tcp),
            seed: None,
        }
    }
}

impl LinkOptions {
    pub(crate) fn check(&self) -> Result<(), Error> {
        if !self.role.is_valid() {
            return wrong(format!(
                "the role `{}` is not valid: use a name of at most 64 bytes, and at least one version",
                self.role
            ));
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

/// Returns the default policy of links.
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

/// The options of a server.
#[derive(Clone)]
pub struct ServerOptions {
    /// The peers that may connect. None by default.
    pub allow: AllowList,
    /// The roles that the server serves; empty means all.
    pub roles: Vec<LinkRole>,
    /// The number of connections. 1024.
    pub max_connections: usize,
    /// The number of connections with the same key. 4.
    pub max_connections_with_key: usize,
    /// The number of concurrent handshakes. Beyond it the server ends the oldest one of the network (IPv6: a /64) that has
    /// most of them. 128.
    pub max_handshakes: usize,
    /// The time limit of a handshake, the hello included. 5 s.
    pub handshake_timeout: Duration,
    /// The resource limits of a connection.
    pub limits: ConnectionLimits,
    /// The transport.
    pub transport: Arc<dyn Transport>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            allow: AllowList::none(),
            roles: Vec::new(),
            max_connections: 1024,
            max_connections_with_key: 4,
            max_handshakes: 128,
            handshake_timeout: Duration::from_secs(5),
            limits: ConnectionLimits::default(),
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
        for (index, role) in self.roles.iter().enumerate() {
            let is_repeated = self.roles.iter().skip(index + 1).any(|other| other.name() == role.name());
            if is_repeated || !role.is_valid() {
                return wrong(format!(
                    "the role `{role}` is not valid: use a name of at most 64 bytes once, with at least one version"
                ));
            }
        }
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

/// The peers that a server accepts.
///
/// The server evaluates it at the handshake, and again at every frame from the peer and at every push to it. Its answer
/// may therefore change while the server runs: the server disconnects a peer that is no longer allowed. The function
/// must answer from memory, without blocking.
#[derive(Clone)]
pub struct AllowList(Arc<dyn Fn(&PublicKey) -> bool + Send + Sync>);

impl AllowList {
    /// Allows every peer that proves a key.
    pub fn any() -> Self {
        Self::when(|_| true)
    }

    /// Allows no peer.
    pub fn none() -> Self {
        Self::when(|_| false)
    }

    /// Allows the peers with these keys and no others.
    pub fn only(keys: impl IntoIterator<Item = PublicKey>) -> Self {
        let keys: HashSet<PublicKey> = keys.into_iter().collect();
        Self::when(move |key| keys.contains(key))
    }

    /// Allows the peers for whose key the function returns `true`.
    pub fn when(allows: impl Fn(&PublicKey) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(allows))
    }

    /// Returns whether the peer with this key may connect, or stay connected.
    pub fn allows(&self, key: &PublicKey) -> bool {
        (self.0)(key)
    }
}

impl fmt::Debug for AllowList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AllowList(..)")
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
    fn the_default_policy_is_unlimited_and_honours_retry_after() {
        let policy = reconnect();
        let wait = |attempts, failure: &Failure, roll| policy.decide(&SoFar::after(attempts), failure, roll);
        let plain = Failure::transient();
        assert_eq!(wait(1, &plain, u32::MAX), Decision::Retry { after: Duration::from_millis(100) });
        assert_eq!(wait(1_000_000, &plain, u32::MAX), Decision::Retry { after: Duration::from_secs(10) });
        let slow = plain.with_retry_after(Duration::from_secs(3600 * 24));
        assert!(wait(1, &slow, 0).delay() >= Some(Duration::from_secs(3600 * 24)));
    }

    #[test]
    fn invalid_options_are_rejected() {
        let link = |limits| LinkOptions { limits, ..LinkOptions::default() }.check();
        assert!(link(ConnectionLimits::default()).is_ok());
        for limits in [
            ConnectionLimits { max_frame: 100, ..ConnectionLimits::default() },
            ConnectionLimits { max_frame: usize::MAX, ..ConnectionLimits::default() },
            ConnectionLimits { idle_timeout: Duration::ZERO, ..ConnectionLimits::default() },
            ConnectionLimits { max_in_flight: 0, ..ConnectionLimits::default() },
            ConnectionLimits { max_queued: usize::MAX, ..ConnectionLimits::default() },
        ] {
            assert!(matches!(link(limits), Err(Error::Options(_))));
        }
        assert!(
            LinkOptions { role: LinkRole::from("r".repeat(65).as_str()), ..LinkOptions::default() }
                .check()
                .is_err()
        );
        assert!(ServerOptions { max_handshakes: 0, ..ServerOptions::default() }.check().is_err());
        assert!(ServerOptions::default().check().is_ok());
    }
}

//! The peers: one link to each other node, shared by all ledgers, with a queue of packets.

use std::collections::HashMap;
use std::time::Duration;

use holdoff_net::{
    ConnectionLimits, Link, LinkOptions, MessageSender, PeerAddress, PublicKey, SecretKey, SenderLimits,
};
use holdoff_policy::{Growth, Jitter, Policy};
use parking_lot::Mutex;

use super::Error;
use super::wire::{MAX_FRAME_BYTES, MAX_MESSAGE_BYTES, Packet, ROLE};

/// The time without any traffic after which a connection is closed. After a partition a new connection works sooner than
/// an old one recovers.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(3);
/// The limits of the queue to a peer. The longest message fits.
const SENDER_LIMITS: SenderLimits =
    SenderLimits { max_queued_bytes: MAX_MESSAGE_BYTES, max_merged_bytes: MAX_FRAME_BYTES };

/// The links of one process to all its peers.
pub(super) struct Peers {
    key: SecretKey,
    options: LinkOptions,
    senders: Mutex<HashMap<PublicKey, MessageSender<Packet>>>,
}

impl Peers {
    /// Creates the set of links, without a link.
    pub(super) fn new(key: SecretKey) -> Self {
        let options = LinkOptions {
            role: ROLE,
            // A restarted node is reconnected within about a second.
            policy: reconnect_policy(),
            slow_retry: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(2),
            call_timeout: Duration::from_secs(5),
            limits: limits(),
            ..LinkOptions::default()
        };
        Self { key, options, senders: Mutex::default() }
    }

    /// Queues a packet. Drops it if the queue is full or the link cannot be created: the core repeats what matters.
    pub(super) fn send(&self, to: &PublicKey, address: &str, packet: Packet) {
        if let Ok(sender) = self.sender(to, address) {
            sender.send_all(packet.split());
        }
    }

    /// Returns the link to a peer.
    pub(super) fn link(&self, to: &PublicKey, address: &str) -> Result<Link, Error> {
        Ok(self.sender(to, address)?.link().clone())
    }

    /// Closes all links.
    pub(super) fn clear(&self) {
        self.senders.lock().clear();
    }

    fn sender(&self, to: &PublicKey, address: &str) -> Result<MessageSender<Packet>, Error> {
        let mut senders = self.senders.lock();
        if let Some(sender) = senders.get(to).filter(|sender| sender.link().peer().address == address) {
            return Ok(sender.clone());
        }
        let remote = PeerAddress { key: *to, address: address.to_owned() };
        let (link, _) = Link::new(&self.key, remote, self.options.clone())?;
        let sender = MessageSender::start(link, SENDER_LIMITS);
        senders.insert(*to, sender.clone());
        Ok(sender)
    }
}

/// Returns the limits of a connection between nodes.
pub(super) fn limits() -> ConnectionLimits {
    ConnectionLimits {
        max_frame: 2 * MAX_FRAME_BYTES,
        idle_timeout: IDLE_TIMEOUT,
        ..ConnectionLimits::default()
    }
}

/// Returns the policy of reconnecting: from 50 ms up to a second, without end.
fn reconnect_policy() -> Policy {
    let growth = Growth::exponential(Duration::from_millis(50), 2.0);
    let builder = Policy::builder(growth).jitter(Jitter::Equal).cap(Duration::from_secs(1));
    builder.attempts(Policy::UNLIMITED).build().unwrap_or_else(|_| Policy::standard())
}

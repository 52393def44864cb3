//! The peers: one link to each other node, shared by all ledgers, with a queue of packets for each ledger.

use std::collections::HashMap;
use std::time::Duration;

use holdoff_net::{
    ConnectionLimits, Link, LinkOptions, MessageSender, PeerAddress, PublicKey, SecretKey, SenderLimits,
};
use holdoff_policy::{Growth, Jitter, Policy};
use parking_lot::Mutex;

use super::Error;
use super::identity::LedgerId;
use super::wire::{MAX_FRAME_BYTES, MAX_MESSAGE_BYTES, Packet, ROLE};

/// The time without any traffic after which a connection is closed. After a partition a new connection works sooner than
/// an old one recovers.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(3);
/// The limits of a ledger's queue to a peer. The longest message fits.
const SENDER_LIMITS: SenderLimits =
    SenderLimits { max_queued_bytes: MAX_MESSAGE_BYTES, max_merged_bytes: MAX_FRAME_BYTES };

/// The links of one process to all its peers.
pub(super) struct Peers {
    key: SecretKey,
    options: LinkOptions,
    links: Mutex<HashMap<PublicKey, PeerLink>>,
}

/// A link, and the queues of the ledgers that use it.
struct PeerLink {
    link: Link,
    senders: HashMap<LedgerId, MessageSender<Packet>>,
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
        Self { key, options, links: Mutex::default() }
    }

    /// Queues a packet. Drops it if the queue of its ledger is full or the link cannot be created: the core repeats what
    /// matters. Returns whether it is queued.
    pub(super) fn send(&self, to: &PublicKey, address: &str, packet: Packet) -> bool {
        let ledger = packet.ledger;
        let sender = self.with_link(to, address, |peer| {
            let start = || MessageSender::start(peer.link.clone(), SENDER_LIMITS);
            peer.senders.entry(ledger).or_insert_with(start).clone()
        });
        sender.is_ok_and(|sender| sender.send_all(packet.split()))
    }

    /// Returns the link to a peer.
    pub(super) fn link(&self, to: &PublicKey, address: &str) -> Result<Link, Error> {
        self.with_link(to, address, |peer| peer.link.clone())
    }

    /// Closes all links.
    pub(super) fn clear(&self) {
        self.links.lock().clear();
    }

    fn with_link<T>(
        &self,
        to: &PublicKey,
        address: &str,
        look: impl FnOnce(&mut PeerLink) -> T,
    ) -> Result<T, Error> {
        let mut links = self.links.lock();
        if let Some(peer) = links.get_mut(to).filter(|peer| peer.link.peer().address == address) {
            return Ok(look(peer));
        }
        let remote = PeerAddress { key: *to, address: address.to_owned() };
        let (link, _) = Link::new(&self.key, remote, self.options.clone())?;
        let mut peer = PeerLink { link, senders: HashMap::new() };
        let found = look(&mut peer);
        links.insert(*to, peer);
        Ok(found)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::wire::Envelope;

    /// Nothing answers at the address, so that the queues fill.
    #[tokio::test]
    async fn a_ledger_that_fills_its_queue_does_not_fill_that_of_another() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (key, address) = (SecretKey::generate().unwrap(), listener.local_addr().unwrap().to_string());
        let (to, peers) = (key.public(), Peers::new(SecretKey::generate().unwrap()));
        let bulk = bytes::Bytes::from(vec![0; MAX_MESSAGE_BYTES / 2]);
        let packet = |ledger| Packet {
            ledger: LedgerId([ledger; 16]),
            incarnation: 1,
            envelope: Envelope::Message(bulk.clone()),
        };
        assert!(peers.send(&to, &address, packet(1)));
        assert!(!peers.send(&to, &address, packet(1)), "the queue of the first ledger is full");
        assert!(peers.send(&to, &address, packet(2)), "the second ledger has a queue of its own");
    }
}

//! The peers: one link to each other node, shared by all ledgers, with a queue of packets.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use holdoff_net::{ConnectionLimits, Link, LinkOptions, LinkStatus, PeerAddress, PublicKey, SecretKey};
use holdoff_policy::{Growth, Jitter, Policy};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::mpsc;

use super::Error;
use super::wire::{MAX_FRAME_BYTES, MAX_MESSAGE_BYTES, Packet, ROLE};

/// The maximum number of packets in a frame.
const MAX_PACKETS_PER_FRAME: usize = 1024;
/// The time without any traffic after which a connection is closed. After a partition a new connection works sooner than
/// an old one recovers.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(3);

/// The links of one process to all its peers.
pub(super) struct Peers {
    key: SecretKey,
    options: LinkOptions,
    links: Mutex<HashMap<PublicKey, PeerLink>>,
}

#[derive(Clone)]
struct PeerLink {
    link: Link,
    packets: mpsc::UnboundedSender<Packet>,
    queued: Arc<AtomicUsize>,
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

    /// Queues a packet. Drops it if the queue is full or the link cannot be created: the core repeats what matters.
    pub(super) fn send(&self, to: &PublicKey, address: &str, packet: Packet) {
        if let Ok(peer) = self.peer(to, address) {
            peer.send(packet);
        }
    }

    /// Returns the link to a peer.
    pub(super) fn link(&self, to: &PublicKey, address: &str) -> Result<Link, Error> {
        Ok(self.peer(to, address)?.link)
    }

    /// Returns the status of the link to a peer, if there is one.
    pub(super) fn status(&self, to: &PublicKey) -> Option<LinkStatus> {
        self.lock().get(to).map(|peer| peer.link.status())
    }

    /// Closes all links.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    fn peer(&self, to: &PublicKey, address: &str) -> Result<PeerLink, Error> {
        let mut peers = self.lock();
        if let Some(peer) = peers.get(to).filter(|peer| peer.link.peer().address == address) {
            return Ok(peer.clone());
        }
        let remote = PeerAddress { key: *to, address: address.to_owned() };
        let (link, _) = Link::new(&self.key, remote, self.options.clone())?;
        let peer = PeerLink::start(link);
        peers.insert(*to, peer.clone());
        Ok(peer)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PublicKey, PeerLink>> {
        self.links.lock()
    }
}

impl PeerLink {
    fn start(link: Link) -> Self {
        let (packets, waiting) = mpsc::unbounded_channel();
        let queued = Arc::new(AtomicUsize::new(0));
        tokio::spawn(send_queued(link.clone(), waiting, queued.clone()));
        Self { link, packets, queued }
    }

    /// Queues a packet as a whole, or drops it. An empty queue accepts a packet of any size.
    fn send(&self, packet: Packet) {
        let bytes = packet.bytes();
        let before = self.queued.fetch_add(bytes, Ordering::AcqRel);
        if before > 0 && before + bytes > MAX_MESSAGE_BYTES {
            self.queued.fetch_sub(bytes, Ordering::AcqRel);
            return;
        }
        // An error means that the link is closed, and its queue with it.
        drop(self.packets.send(packet));
    }
}

/// Sends the queued packets, many in one frame. Drops the packets that cannot be sent now: later they would be stale.
async fn send_queued(link: Link, mut waiting: mpsc::UnboundedReceiver<Packet>, queued: Arc<AtomicUsize>) {
    let mut packets = Vec::new();
    while waiting.recv_many(&mut packets, MAX_PACKETS_PER_FRAME).await > 0 {
        let bytes: usize = packets.iter().map(Packet::bytes).sum();
        for frame in frames(packets.drain(..)) {
            let Ok(encoded) = holdoff_net::encode(&frame) else { continue };
            if link.send(encoded).await.is_err() {
                break;
            }
        }
        queued.fetch_sub(bytes, Ordering::AcqRel);
    }
}

/// Combines packets into as few frames as possible.
fn frames(packets: impl Iterator<Item = Packet>) -> Vec<Vec<Packet>> {
    let (mut frames, mut bytes) = (vec![Vec::new()], 0);
    for packet in packets.flat_map(Packet::split) {
        bytes += packet.bytes();
        if bytes > MAX_FRAME_BYTES {
            bytes = packet.bytes();
            frames.push(Vec::new());
        }
        if let Some(frame) = frames.last_mut() {
            frame.push(packet);
        }
    }
    frames.retain(|frame| !frame.is_empty());
    frames
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
    use bytes::Bytes;

    use super::super::identity::LedgerId;
    use super::super::wire::Envelope;
    use super::*;

    #[test]
    fn packets_are_combined_into_frames_in_order() {
        let packet = |length: usize| Packet {
            ledger: LedgerId([0; 16]),
            incarnation: 0,
            envelope: Envelope::Message(Bytes::from(vec![0; length])),
        };
        let sizes = [10, 20, MAX_FRAME_BYTES / 2, MAX_FRAME_BYTES / 2, 30, 2 * MAX_FRAME_BYTES, 5];
        let frames = frames(sizes.into_iter().map(packet));
        let sizes_of = |frame: &Vec<Packet>| frame.iter().map(Packet::bytes).sum::<usize>();
        assert!(frames.iter().all(|frame| sizes_of(frame) <= MAX_FRAME_BYTES && !frame.is_empty()));
        assert!(frames.len() < 9, "{} frames", frames.len());
        let together: Vec<_> = frames.concat();
        assert_eq!(together, sizes.into_iter().map(packet).flat_map(Packet::split).collect::<Vec<_>>());
    }
}

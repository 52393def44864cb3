//! The lines to other nodes: one link each, for all ledgers, and what waits to be sent.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdoff_net::{Key, Limits, Link, LinkOptions, PublicKey, Remote, Status};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::Error;
use super::waiting::patient;
use super::wire::{LETTER_BYTES, MESSAGE_BYTES, Packet, ROLE};

/// So many packets are put into a message at most.
const PACKETS: usize = 1024;
/// How long nothing may be heard of a node before its connection is given up. A connection that outlives a partition would
/// find its way back later than a new one.
pub(super) const SILENCE: Duration = Duration::from_secs(3);

/// All lines of one process.
pub(super) struct Lines {
    key: Key,
    options: LinkOptions,
    runtime: Handle,
    open: Mutex<HashMap<PublicKey, Line>>,
}

#[derive(Clone)]
struct Line {
    link: Link,
    packets: mpsc::UnboundedSender<Packet>,
    queued: Arc<AtomicUsize>,
}

impl Lines {
    /// On the runtime that this is called on.
    pub(super) fn new(key: Key) -> Result<Self, Error> {
        let runtime = Handle::try_current().map_err(|error| Error::Net(error.to_string()))?;
        let options = LinkOptions {
            role: ROLE.to_owned(),
            // A node that is back is found within a second or so.
            policy: patient(Duration::from_millis(50), Duration::from_secs(1)),
            slow_retry: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(2),
            call_timeout: Duration::from_secs(5),
            limits: limits(),
            ..LinkOptions::default()
        };
        Ok(Self { key, options, runtime, open: Mutex::default() })
    }

    /// Sends a packet, if there is a way and room on it; whoever sends repeats what matters.
    pub(super) fn send(&self, to: &PublicKey, address: &str, packet: Packet) {
        if let Ok(line) = self.line(to, address) {
            line.send(packet);
        }
    }

    /// The link to somebody.
    pub(super) fn link(&self, to: &PublicKey, address: &str) -> Result<Link, Error> {
        Ok(self.line(to, address)?.link)
    }

    /// How the link to somebody is doing, if there is one.
    pub(super) fn status(&self, to: &PublicKey) -> Option<Status> {
        self.lock().get(to).map(|line| line.link.status())
    }

    /// Hangs up on everybody.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    fn line(&self, to: &PublicKey, address: &str) -> Result<Line, Error> {
        let mut lines = self.lock();
        if let Some(line) = lines.get(to).filter(|line| line.link.remote().address == address) {
            return Ok(line.clone());
        }
        // Whoever sends may be a thread of the disk.
        let _on = self.runtime.enter();
        let remote = Remote { key: *to, address: address.to_owned() };
        let (link, _) = Link::new(&self.key, remote, self.options.clone())?;
        let line = Line::start(link);
        lines.insert(*to, line.clone());
        Ok(line)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<PublicKey, Line>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    fn start(link: Link) -> Self {
        let (packets, waiting) = mpsc::unbounded_channel();
        let queued = Arc::new(AtomicUsize::new(0));
        tokio::spawn(carry(link.clone(), waiting, queued.clone()));
        Self { link, packets, queued }
    }

    /// A letter waits as a whole or not at all. One has always room, however long it is.
    fn send(&self, packet: Packet) {
        let bytes = packet.bytes();
        let before = self.queued.fetch_add(bytes, Ordering::AcqRel);
        if before > 0 && before + bytes > LETTER_BYTES {
            self.queued.fetch_sub(bytes, Ordering::AcqRel);
            return;
        }
        // An error means that the line is gone, and with it what waited.
        drop(self.packets.send(packet));
    }
}

/// Sends what waits, many packets in one message. What cannot be sent now is too old later.
async fn carry(link: Link, mut waiting: mpsc::UnboundedReceiver<Packet>, queued: Arc<AtomicUsize>) {
    let mut packets = Vec::new();
    while waiting.recv_many(&mut packets, PACKETS).await > 0 {
        let bytes: usize = packets.iter().map(Packet::bytes).sum();
        for message in messages(packets.drain(..)) {
            let Ok(encoded) = holdoff_net::encode(&message) else { continue };
            if link.tell(encoded).await.is_err() {
                break;
            }
        }
        queued.fetch_sub(bytes, Ordering::AcqRel);
    }
}

/// As few messages as hold these packets.
fn messages(packets: impl Iterator<Item = Packet>) -> Vec<Vec<Packet>> {
    let (mut messages, mut bytes) = (vec![Vec::new()], 0);
    for packet in packets.flat_map(Packet::split) {
        bytes += packet.bytes();
        if bytes > MESSAGE_BYTES {
            bytes = packet.bytes();
            messages.push(Vec::new());
        }
        if let Some(message) = messages.last_mut() {
            message.push(packet);
        }
    }
    messages.retain(|message| !message.is_empty());
    messages
}

/// What a connection between nodes may cost.
pub(super) fn limits() -> Limits {
    Limits { max_frame: 2 * MESSAGE_BYTES, idle_timeout: SILENCE, ..Limits::default() }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::identity::LedgerId;
    use super::super::wire::Said;
    use super::*;

    #[test]
    fn packets_travel_together_and_in_order() {
        let packet = |length: usize| Packet {
            ledger: LedgerId([0; 16]),
            life: 0,
            said: Said::Letter(Bytes::from(vec![0; length])),
        };
        let sizes = [10, 20, MESSAGE_BYTES / 2, MESSAGE_BYTES / 2, 30, 2 * MESSAGE_BYTES, 5];
        let messages = messages(sizes.into_iter().map(packet));
        let sizes_of = |message: &Vec<Packet>| message.iter().map(Packet::bytes).sum::<usize>();
        assert!(messages.iter().all(|message| sizes_of(message) <= MESSAGE_BYTES && !message.is_empty()));
        assert!(messages.len() < 9, "{} messages", messages.len());
        let together: Vec<_> = messages.concat();
        assert_eq!(together, sizes.into_iter().map(packet).flat_map(Packet::split).collect::<Vec<_>>());
    }
}

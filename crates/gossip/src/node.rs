//! A gossip node: the hint, the peers that it is sent to, and the counters.
//!
//! A node knows all other nodes, and draws the receivers of each message anew, so that a message reaches all nodes in a
//! number of hops that grows with the logarithm of their number.

use fastrand::Rng;
use holdoff_net::PublicKey;

use crate::{Electorate, Hint, LogRole, Message, Outgoing, Settings, Signer, TransferError, Verifier, Watch};

/// A message to another node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// The receiver.
    pub to: PublicKey,
    /// The message.
    pub message: Message,
}

/// A node that takes part in gossip.
#[derive(Clone, Debug)]
pub struct Node<S, V> {
    watch: Watch<S, V>,
    peers: Vec<PublicKey>,
    fan_out: usize,
}

impl<S: Signer, V: Verifier> Node<S, V> {
    /// Creates a node that has sent nothing yet. The peers are all other nodes.
    pub fn new(watch: Watch<S, V>, peers: Vec<PublicKey>, settings: &Settings) -> Self {
        let fan_out = usize::try_from(settings.fan_out).unwrap_or(usize::MAX);
        let mut node = Self { watch, peers: Vec::new(), fan_out };
        node.set_peers(peers);
        node
    }

    /// Performs a round. The caller calls it once a round; the first round begins at once.
    pub fn tick(&mut self, now_us: u64, roll: u64) -> Vec<Transmit> {
        let outgoing = self.watch.tick(now_us);
        self.address(None, outgoing, roll)
    }

    /// Handles a message. The caller has authenticated the sender.
    pub fn receive(&mut self, now_us: u64, roll: u64, from: PublicKey, message: Message) -> Vec<Transmit> {
        let outgoing = self.watch.receive(now_us, message);
        self.address(Some(from), outgoing, roll)
    }

    /// Takes over the log's view of this node: leader, follower or neither.
    pub fn set_log_role(&mut self, now_us: u64, log_role: LogRole) {
        self.watch.set_log_role(now_us, log_role);
    }

    /// Takes over the log's set of voters.
    pub fn set_electorate(&mut self, now_us: u64, electorate: Electorate) {
        self.watch.set_electorate(now_us, electorate);
    }

    /// Replaces the peers: all other nodes. The hint stays.
    pub fn set_peers(&mut self, mut peers: Vec<PublicKey>) {
        peers.sort_unstable();
        peers.dedup();
        self.peers = peers;
    }

    /// Begins a leadership transfer from this leader to another voter.
    pub fn transfer_leadership(
        &mut self,
        now_us: u64,
        roll: u64,
        to: PublicKey,
    ) -> Result<Vec<Transmit>, TransferError> {
        let outgoing = self.watch.transfer_leadership(now_us, to)?;
        Ok(self.address(Some(to), outgoing, roll))
    }

    /// Returns the node that should lead, once the claim is settled.
    pub fn leader(&self, now_us: u64) -> Option<PublicKey> {
        self.watch.leader(now_us)
    }

    /// Returns the highest hint known, settled or not.
    pub fn hint(&self) -> Option<Hint> {
        self.watch.hint()
    }

    /// Returns the node's counters.
    pub fn counts(&self) -> &GossipCounters {
        self.watch.counts()
    }

    fn address(&self, from: Option<PublicKey>, outgoing: Vec<Outgoing>, roll: u64) -> Vec<Transmit> {
        let mut rng = Rng::with_seed(roll);
        let mut some = |limit: usize| {
            let mut keys = self.peers.clone();
            rng.shuffle(&mut keys);
            keys.truncate(limit);
            keys
        };
        let mut sends = Vec::new();
        for to_send in outgoing {
            let (to, message) = match to_send {
                Outgoing::Spread(message) => (some(self.fan_out), message),
                Outgoing::Announce(message) => (some(self.fan_out.saturating_mul(2)), message),
                Outgoing::Single(message) => (some(1), message),
                Outgoing::Reply(message) => (from.into_iter().collect(), message),
            };
            sends.extend(to.into_iter().map(|to| Transmit { to, message: message.clone() }));
        }
        sends
    }
}

/// A node's counters since its start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct GossipCounters {
    /// Heartbeats that this node raised as the leader.
    pub raised: u64,
    /// Heartbeats of other leaders that this node adopted.
    pub heard: u64,
    /// Claims that this node adopted.
    pub claims: u64,
    /// Times that this node began to suspect the leader.
    pub suspected: u64,
    /// Suspicions that a later heartbeat proved wrong.
    pub false_alarms: u64,
    /// Certificates, votes and heartbeats without valid signatures by nodes that may sign them, and messages beyond the
    /// limits.
    pub forged: u64,
    /// Messages and answers suppressed by the limits for a round.
    pub suppressed: u64,
}

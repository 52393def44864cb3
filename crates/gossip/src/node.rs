//! A gossip node: the hint, the peers that it is sent to, and the counters.

use fastrand::Rng;
use holdoff_net::PublicKey;

use crate::{
    Electorate, GossipPeer, Hint, LogRole, Message, Outgoing, Sampling, Settings, Signer, TransferError,
    Verifier, Watch,
};

/// A message to another node. [`Node::sampling`] has the receiver's address, unless the message answers a node that is
/// not one of the peers.
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
    sampling: Sampling,
    fan_out: usize,
    exchange_rounds: u32,
    has_joined: bool,
}

impl<S: Signer, V: Verifier> Node<S, V> {
    /// Creates a node that has sent nothing yet.
    pub fn new(watch: Watch<S, V>, sampling: Sampling, settings: &Settings) -> Self {
        let fan_out = usize::try_from(settings.fan_out).unwrap_or(usize::MAX);
        Self { watch, sampling, fan_out, exchange_rounds: settings.exchange_rounds, has_joined: false }
    }

    /// Performs a round. The caller calls it once a round; the first round begins at once.
    pub fn tick(&mut self, now_us: u64, roll: u64) -> Vec<Transmit> {
        let mut rng = Rng::with_seed(roll);
        let mut sends = Vec::new();
        if !self.has_joined {
            self.has_joined = true;
            sends.extend(self.sampling.join());
        }
        sends.extend(self.sampling.tick(self.exchange_rounds, &mut rng, &mut self.watch.counts));
        let mut sends: Vec<_> = sends.into_iter().map(|(to, message)| Transmit { to, message }).collect();
        let outgoing = self.watch.tick(now_us);
        sends.extend(self.address(None, outgoing, &mut rng));
        sends
    }

    /// Handles a message. The caller has authenticated the sender.
    pub fn receive(&mut self, now_us: u64, roll: u64, from: PublicKey, message: Message) -> Vec<Transmit> {
        let mut rng = Rng::with_seed(roll);
        match message {
            Message::Join(_)
            | Message::Introduce(_)
            | Message::Exchange(_)
            | Message::Exchanged(_)
            | Message::Busy => {
                let sends = self.sampling.receive(from, message, &mut rng).into_iter();
                sends.map(|(to, message)| Transmit { to, message }).collect()
            }
            message => {
                let outgoing = self.watch.receive(now_us, message);
                self.address(Some(from), outgoing, &mut rng)
            }
        }
    }

    /// Handles an unreachable peer.
    pub fn remove_peer(&mut self, roll: u64, key: &PublicKey) {
        self.sampling.remove_peer(key, &mut Rng::with_seed(roll), &mut self.watch.counts);
    }

    /// Takes over the log's view of this node: leader, follower or neither.
    pub fn set_log_role(&mut self, now_us: u64, log_role: LogRole) {
        self.watch.set_log_role(now_us, log_role);
    }

    /// Takes over the log's set of voters.
    pub fn set_electorate(&mut self, now_us: u64, electorate: Electorate) {
        self.watch.set_electorate(now_us, electorate);
    }

    /// Replaces the contacts: all other nodes, or, if `is_all` is false, the nodes to begin with. The hint stays.
    pub fn set_contacts(&mut self, contacts: Vec<GossipPeer>, is_all: bool) {
        self.sampling = Sampling::new(self.sampling.me().clone(), contacts, is_all);
        self.has_joined = false;
    }

    /// Begins a leadership transfer from this leader to another voter.
    pub fn transfer_leadership(
        &mut self,
        now_us: u64,
        roll: u64,
        to: PublicKey,
    ) -> Result<Vec<Transmit>, TransferError> {
        let outgoing = self.watch.transfer_leadership(now_us, to)?;
        Ok(self.address(Some(to), outgoing, &mut Rng::with_seed(roll)))
    }

    /// Returns the node that should lead, once the claim is settled.
    pub fn leader(&self, now_us: u64) -> Option<PublicKey> {
        self.watch.leader(now_us)
    }

    /// Returns the highest hint known, settled or not.
    pub fn hint(&self) -> Option<Hint> {
        self.watch.hint()
    }

    /// Returns the node's peers.
    pub fn sampling(&self) -> &Sampling {
        &self.sampling
    }

    /// Returns the node's counters.
    pub fn counts(&self) -> &GossipCounters {
        self.watch.counts()
    }

    fn address(&self, from: Option<PublicKey>, outgoing: Vec<Outgoing>, rng: &mut Rng) -> Vec<Transmit> {
        let mut sends = Vec::new();
        for to_send in outgoing {
            let (to, message) = match to_send {
                Outgoing::Spread(message) => (self.sampling.some(self.fan_out, rng), message),
                Outgoing::Announce(message) => {
                    (self.sampling.some(self.fan_out.saturating_mul(2), rng), message)
                }
                Outgoing::Single(message) => (self.sampling.some(1, rng), message),
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
    /// Exchanges of arcs that this node began.
    pub exchanges: u64,
    /// Arcs lost because their peer was unreachable.
    pub lost_arcs: u64,
}

//! A gossip node: the hint, and the peers that it is sent to.

use fastrand::Rng;
use holdoff_net::PublicKey;

use crate::{
    Counts, Electorate, Hint, Message, NotNow, Peer, Sampling, Say, Settings, Signer, Standing, Verifier,
    Watch,
};

/// A message to another node. [`Node::sampling`] has the receiver's address, unless the message answers a node that is
/// not one of the peers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Send {
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
    pub fn tick(&mut self, now_us: u64, roll: u64) -> Vec<Send> {
        let mut rng = Rng::with_seed(roll);
        let mut sends = Vec::new();
        if !self.has_joined {
            self.has_joined = true;
            sends.extend(self.sampling.join());
        }
        sends.extend(self.sampling.tick(self.exchange_rounds, &mut rng, &mut self.watch.counts));
        let mut sends: Vec<_> = sends.into_iter().map(|(to, message)| Send { to, message }).collect();
        let says = self.watch.tick(now_us);
        sends.extend(self.address(None, says, &mut rng));
        sends
    }

    /// Handles a message. The caller has authenticated the sender.
    pub fn receive(&mut self, now_us: u64, roll: u64, from: PublicKey, message: Message) -> Vec<Send> {
        let mut rng = Rng::with_seed(roll);
        match message {
            Message::Join(_)
            | Message::Introduce(_)
            | Message::Exchange(_)
            | Message::Exchanged(_)
            | Message::Busy => {
                let sends = self.sampling.receive(from, message, &mut rng).into_iter();
                sends.map(|(to, message)| Send { to, message }).collect()
            }
            message => {
                let says = self.watch.hear(now_us, message);
                self.address(Some(from), says, &mut rng)
            }
        }
    }

    /// Handles an unreachable peer.
    pub fn lose(&mut self, roll: u64, whom: &PublicKey) {
        self.sampling.lose(whom, &mut Rng::with_seed(roll), &mut self.watch.counts);
    }

    /// Takes over the log's view of this node: leader, follower or neither.
    pub fn stand(&mut self, now_us: u64, standing: Standing) {
        self.watch.stand(now_us, standing);
    }

    /// Takes over the log's set of voters.
    pub fn elect(&mut self, now_us: u64, electorate: Electorate) {
        self.watch.elect(now_us, electorate);
    }

    /// Replaces the contacts: all other nodes, or, if `is_all` is false, the nodes to begin with. The hint stays.
    pub fn meet(&mut self, contacts: Vec<Peer>, is_all: bool) {
        self.sampling = Sampling::new(self.sampling.me().clone(), contacts, is_all);
        self.has_joined = false;
    }

    /// Begins a leadership transfer from this leader to another voter.
    pub fn hand_over(&mut self, now_us: u64, roll: u64, to: PublicKey) -> Result<Vec<Send>, NotNow> {
        let says = self.watch.hand_over(now_us, to)?;
        Ok(self.address(Some(to), says, &mut Rng::with_seed(roll)))
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
    pub fn counts(&self) -> &Counts {
        self.watch.counts()
    }

    fn address(&self, from: Option<PublicKey>, says: Vec<Say>, rng: &mut Rng) -> Vec<Send> {
        let mut sends = Vec::new();
        for say in says {
            let (to, message) = match say {
                Say::Spread(message) => (self.sampling.some(self.fan_out, rng), message),
                Say::Announce(message) => (self.sampling.some(self.fan_out.saturating_mul(2), rng), message),
                Say::Whisper(message) => (self.sampling.some(1, rng), message),
                Say::Answer(message) => (from.into_iter().collect(), message),
            };
            sends.extend(to.into_iter().map(|to| Send { to, message: message.clone() }));
        }
        sends
    }
}

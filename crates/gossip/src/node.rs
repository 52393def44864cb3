//! One node: the hint, and whom it is told to.

use fastrand::Rng;
use holdoff_net::PublicKey;

use crate::{
    Counts, Electorate, Hint, Message, NotNow, Peer, Sampling, Say, Settings, Signer, Standing, Verifier,
    Watch,
};

/// A message to another node. Where that is, [`Node::sampling`] knows, unless it is one that has just said something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Send {
    /// To whom.
    pub to: PublicKey,
    /// What.
    pub message: Message,
}

/// A node that gossips.
#[derive(Clone, Debug)]
pub struct Node<S, V> {
    watch: Watch<S, V>,
    sampling: Sampling,
    fan_out: usize,
    exchange_rounds: u32,
    has_joined: bool,
}

impl<S: Signer, V: Verifier> Node<S, V> {
    /// A node that has said nothing yet.
    pub fn new(watch: Watch<S, V>, sampling: Sampling, settings: &Settings) -> Self {
        let fan_out = usize::try_from(settings.fan_out).unwrap_or(usize::MAX);
        Self { watch, sampling, fan_out, exchange_rounds: settings.exchange_rounds, has_joined: false }
    }

    /// A round has passed; the first one begins at once.
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

    /// Another node, that has proved who it is, has said something.
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

    /// Another node was not reached.
    pub fn lose(&mut self, roll: u64, whom: &PublicKey) {
        self.sampling.lose(whom, &mut Rng::with_seed(roll), &mut self.watch.counts);
    }

    /// The log says where this node stands.
    pub fn stand(&mut self, now_us: u64, standing: Standing) {
        self.watch.stand(now_us, standing);
    }

    /// The log says who votes from now on.
    pub fn elect(&mut self, now_us: u64, electorate: Electorate) {
        self.watch.elect(now_us, electorate);
    }

    /// These are the others now, or, if not all, where to begin. What is known of who should lead stays.
    pub fn meet(&mut self, contacts: Vec<Peer>, is_all: bool) {
        self.sampling = Sampling::new(self.sampling.me().clone(), contacts, is_all);
        self.has_joined = false;
    }

    /// The leader would rather have another voter lead.
    pub fn hand_over(&mut self, now_us: u64, roll: u64, to: PublicKey) -> Result<Vec<Send>, NotNow> {
        let says = self.watch.hand_over(now_us, to)?;
        Ok(self.address(Some(to), says, &mut Rng::with_seed(roll)))
    }

    /// Who should lead, once that is settled.
    pub fn leader(&self, now_us: u64) -> Option<PublicKey> {
        self.watch.leader(now_us)
    }

    /// The best that is known, settled or not.
    pub fn hint(&self) -> Option<Hint> {
        self.watch.hint()
    }

    /// What it knows of others.
    pub fn sampling(&self) -> &Sampling {
        &self.sampling
    }

    /// What it has done so far.
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

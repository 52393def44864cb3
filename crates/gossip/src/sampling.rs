//! Whom to tell: everybody where there are few, a small random view where there are many.
//!
//! Above ten nodes it is in the manner of SPRAY (Nédelec, Tanke, Molli, Mostefaoui, Frey): whoever joins is made known to
//! all neighbours of the first it knows, so that views grow with the logarithm of the number of nodes; now and then a node
//! swaps half of its arcs with its oldest neighbour, so that they stay random, and none is lost or made by that.
//! Arcs may be double. Whoever is not reached goes, and an arc that is lost so is mostly made up for by doubling another.
//! What SPRAY does not have: now and then an arc is turned to somebody in the file. Views that came apart while nobody reached
//! the other side would never notice that one can again.

mod address;
mod view;

use fastrand::Rng;
use holdoff_net::PublicKey;

use crate::{Counts, Message};

pub use address::{Address, BadAddress, Peer};
use view::{FEW, View};

/// Up to so many nodes everybody knows everybody.
pub const MESH: usize = 10;
/// No view has more arcs.
pub const MAX_ARCS: usize = 32;
/// No exchange has more.
pub const MAX_EXCHANGED: usize = MAX_ARCS / 2;

/// One exchange in so many is with somebody in the file, if there is one that the view does not have.
const BACK_TO_FILE: usize = 4;

/// What a node knows of others.
#[derive(Clone, Debug)]
pub struct Sampling {
    me: Peer,
    /// Who is in the file: where to begin, and to begin again when all others are lost.
    contacts: Vec<Peer>,
    known: Known,
}

#[derive(Clone, Debug)]
enum Known {
    All(Vec<Peer>),
    Some { view: View, asked: Option<Asked>, rounds: u32, taken: bool },
}

/// An exchange that is not answered yet.
#[derive(Clone, Debug)]
struct Asked {
    whom: PublicKey,
    given: Vec<Peer>,
}

impl Sampling {
    /// All others are known, and few: everybody knows everybody. Otherwise these are where to begin.
    pub fn new(me: Peer, mut contacts: Vec<Peer>, is_all: bool) -> Self {
        contacts.retain(|peer| peer.key != me.key);
        contacts.truncate(MAX_ARCS);
        let known = if is_all && contacts.len() < MESH {
            Known::All(contacts.clone())
        } else {
            let view = View::of(contacts.iter().take(FEW).cloned());
            Known::Some { view, asked: None, rounds: 0, taken: false }
        };
        Self { me, contacts, known }
    }

    /// The node itself.
    pub fn me(&self) -> &Peer {
        &self.me
    }

    /// Everybody that it may say something to; some may be there twice.
    pub fn peers(&self) -> Vec<&Peer> {
        match &self.known {
            Known::All(peers) => peers.iter().collect(),
            Known::Some { view, .. } => view.peers().collect(),
        }
    }

    /// So many different others, at random.
    pub fn some(&self, many: usize, rng: &mut Rng) -> Vec<PublicKey> {
        let mut keys: Vec<_> = self.peers().into_iter().map(|peer| peer.key).collect();
        keys.sort_unstable();
        keys.dedup();
        rng.shuffle(&mut keys);
        keys.truncate(many);
        keys
    }

    /// Says to whom it knows that it is there.
    pub fn join(&self) -> Option<(PublicKey, Message)> {
        let Known::Some { view, .. } = &self.known else { return None };
        Some((view.peers().next()?.key, Message::Join(self.me.clone())))
    }

    /// A round has passed; every so many of them some arcs are exchanged.
    pub fn tick(&mut self, every: u32, rng: &mut Rng, counts: &mut Counts) -> Option<(PublicKey, Message)> {
        let Known::Some { rounds, taken, asked, .. } = &mut self.known else { return None };
        (*taken, *rounds) = (false, rounds.saturating_add(1));
        if *rounds < every {
            return None;
        }
        *rounds = 0;
        if let Some(Asked { whom, .. }) = asked.take() {
            self.lose(&whom, rng, counts);
        }
        self.exchange(rng, counts).or_else(|| self.begin_again())
    }

    /// Somebody is not reached: no arc leads there any more. Where everybody knows everybody, it may come back.
    pub fn lose(&mut self, whom: &PublicKey, rng: &mut Rng, counts: &mut Counts) {
        if let Known::Some { view, .. } = &mut self.known {
            counts.lost_arcs += view.lose(whom, rng);
        }
    }

    /// Somebody says something about arcs; what it says, and to whom that leads, is answered.
    pub fn receive(&mut self, from: PublicKey, message: Message, rng: &mut Rng) -> Vec<(PublicKey, Message)> {
        let Known::Some { view, asked, taken, .. } = &mut self.known else { return Vec::new() };
        match message {
            Message::Join(peer) if peer.key == from && from != self.me.key => {
                let told: Vec<_> = view.others(&from);
                if told.is_empty() {
                    view.add(peer.clone());
                }
                told.into_iter().map(|to| (to, Message::Introduce(peer.clone()))).collect()
            }
            Message::Introduce(peer) if peer.key != self.me.key => {
                view.add(peer);
                Vec::new()
            }
            // One in a round: nobody can turn a view over at will.
            Message::Exchange(theirs)
                if !*taken
                    && theirs.len() <= MAX_EXCHANGED
                    && theirs.first().is_some_and(|peer| peer.key == from) =>
            {
                *taken = true;
                let given = view.half(None, rng);
                view.swap(&given, theirs, &self.me.key);
                vec![(from, Message::Exchanged(instead(given, &from, &self.me)))]
            }
            Message::Exchange(_) if *taken => vec![(from, Message::Busy)],
            Message::Busy => {
                asked.take_if(|asked| asked.whom == from);
                Vec::new()
            }
            Message::Exchanged(theirs)
                if theirs.len() <= MAX_EXCHANGED
                    && asked.as_ref().is_some_and(|asked| asked.whom == from) =>
            {
                if let Some(Asked { given, .. }) = asked.take() {
                    view.swap(&given, theirs, &self.me.key);
                }
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn exchange(&mut self, rng: &mut Rng, counts: &mut Counts) -> Option<(PublicKey, Message)> {
        let Known::Some { view, asked, .. } = &mut self.known else { return None };
        if rng.usize(0..BACK_TO_FILE) == 0 {
            let strangers: Vec<_> = self.contacts.iter().filter(|peer| !view.has(&peer.key)).collect();
            if let Some(stranger) = rng.choice(strangers) {
                view.turn_to(stranger.clone());
            }
        }
        let oldest = view.oldest()?;
        let given = view.half(Some(&oldest), rng);
        let mut told = instead(given.clone(), &oldest, &self.me);
        // The arc to whom is asked becomes one to who asks; it stands first.
        if let Some(at) = told.iter().position(|peer| peer.key == self.me.key) {
            told.swap(0, at);
        }
        *asked = Some(Asked { whom: oldest, given });
        counts.exchanges += 1;
        Some((oldest, Message::Exchange(told)))
    }

    /// All are lost: from the beginning.
    fn begin_again(&mut self) -> Option<(PublicKey, Message)> {
        let Known::Some { view, .. } = &mut self.known else { return None };
        *view = View::of(self.contacts.iter().take(FEW).cloned());
        self.join()
    }
}

/// An arc to whom it is given to would lead nowhere: it becomes one to the giver.
fn instead(given: Vec<Peer>, to: &PublicKey, me: &Peer) -> Vec<Peer> {
    given.into_iter().map(|peer| if peer.key == *to { me.clone() } else { peer }).collect()
}

//! What others say.

use holdoff_net::PublicKey;

use super::{Task, Told};
use crate::ledger::{Input, LetterOf};
use crate::runtime::identity::node_id;
use crate::runtime::roster::Wish;
use crate::runtime::wire::{Head, Said};
use crate::runtime::{Estate, Housed, clock};

impl<M: Housed> Task<M> {
    /// Another node, that has proved its key, has said something.
    pub(super) fn hear(&mut self, from: PublicKey, life: u64, said: Said) {
        if !self.book.has(&from) {
            self.counts.strangers += 1;
            return;
        }
        match said {
            Said::Here(head) => self.hear_of(from, Told { life, head, at_us: clock::now_us() }),
            Said::Letter(bytes) => {
                let id = node_id(&from, life);
                // Whoever lost its storage is somebody else, who must be made known first.
                if self.book.key(id) != Some(from) {
                    self.counts.strangers += 1;
                    return;
                }
                match holdoff_net::decode::<LetterOf<Estate<M>>>(&bytes) {
                    Ok(letter) => self.step(Input::Message(id, letter)),
                    Err(_) => self.counts.garbage += 1,
                }
            }
            Said::Gossip(bytes) => match holdoff_gossip::Message::decode(&bytes) {
                Ok(message) => {
                    let sends = self.gossip.receive(clock::now_us(), self.rng.u64(..), from, message);
                    self.whisper(sends);
                }
                Err(_) => self.counts.garbage += 1,
            },
            // Whoever hears packets puts parts together first.
            Said::Part(..) => self.counts.garbage += 1,
        }
    }

    /// Somebody is there. If it has come with another storage, everybody must know.
    fn hear_of(&mut self, from: PublicKey, told: Told) {
        self.heads.insert(from, told);
        self.compare(&from, told.head);
        let known = self.core.state().machine().first.get(&from).map(|member| member.life);
        if self.core.is_ready() && known.is_some_and(|life| life != Some(told.life)) {
            self.wish(Wish::Appear(from, told.life));
        }
    }

    /// At the same place everybody has the same hash. Where that is not so, somebody is broken, and people must know.
    fn compare(&mut self, from: &PublicKey, theirs: Head) {
        let state = self.core.state();
        if theirs.index == state.index() && theirs.hash != state.hash() {
            self.counts.diverged += 1;
            tracing::error!(
                namespace = %self.namespace, peer = %from, index = %theirs.index, theirs = %theirs.hash, mine = %state.hash(),
                "two nodes have different histories: stop them, and compare their disks"
            );
        }
    }
}

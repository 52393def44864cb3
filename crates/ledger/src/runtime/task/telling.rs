//! What the node wants done: letters, answers, hearsay.

use holdoff_gossip::{Send, Standing};
use holdoff_net::PublicKey;
use holdoff_paxos::{NodeId, Slot};
use tokio::sync::oneshot;

use super::{History, Led, NotLed, Task};
use crate::ledger::{Input, LetterOf, Output, OutputOf};
use crate::machine::Either;
use crate::metrics;
use crate::runtime::wire::{Packet, Said, Wanted};
use crate::runtime::{Estate, Housed, Page, clock};

impl<M: Housed> Task<M> {
    pub(super) fn carry_out(&mut self, output: OutputOf<Estate<M>>) {
        match output {
            Output::Send(to, letter) => {
                let Some((key, address, packet)) = self.addressed(to, &letter) else { return };
                let lines = self.lines.clone();
                self.act(move || lines.send(&key, &address, packet));
            }
            Output::Stored { term, slot } => {
                let stored = self.stored.clone();
                self.act(move || {
                    stored.send_replace(Some((term, slot)));
                });
            }
            Output::HandedOver(to) => {
                let to = self.book.key(to);
                self.leave_hint(to);
                for caller in std::mem::take(&mut self.led) {
                    drop(caller.send(to.ok_or(NotLed::Elsewhere(None))));
                }
            }
            Output::Changed(voters, at) => {
                tracing::info!(namespace = %self.namespace, ?voters, %at, "others vote from now on");
            }
            // Whoever leads wants it again in a moment, if it is still wanted.
            Output::NotChanged(_, why) => {
                tracing::debug!(namespace = %self.namespace, %why, "the voters are the same");
            }
            Output::NotHandedOver(why) => {
                for caller in std::mem::take(&mut self.led) {
                    drop(caller.send(Err(NotLed::Because(why.to_string()))));
                }
            }
            Output::Ended(tx_id, outcome) => {
                metrics::ended(&self.namespace, &outcome);
                for caller in self.callers.remove(&tx_id).unwrap_or_default() {
                    let outcome = outcome.clone();
                    self.act(move || drop(caller.send(outcome)));
                }
            }
            Output::Rerouted { tx_id, from, to } => {
                tracing::warn!(namespace = %self.namespace, %tx_id, %from, %to, "the leader changed during a transaction");
            }
            Output::Answered { read, index, result } => {
                let Some(reader) = self.readers.remove(&read) else { return };
                let result = match result {
                    Ok(Either::Second(answer)) => Ok(answer),
                    Ok(Either::First(())) => return,
                    Err(failed) => Err(failed),
                };
                self.act(move || drop(reader.send(Ok((index, result)))));
            }
            Output::NotAnswered(read, leader) => {
                let leader = leader.and_then(|leader| self.book.key(leader)).or_else(|| self.hearsay());
                if let Some(reader) = self.readers.remove(&read) {
                    drop(reader.send(Err(leader)));
                }
            }
            Output::Torn(tear) => {
                tracing::error!(namespace = %self.namespace, %tear, "this node has stopped: its disk is to be looked at");
            }
        }
    }

    /// What need not wait for this node's disk.
    pub(super) fn send_early(&mut self, output: OutputOf<Estate<M>>) {
        match output {
            Output::Send(to, letter) => {
                if let Some((key, address, packet)) = self.addressed(to, &letter) {
                    self.lines.send(&key, &address, packet);
                }
            }
            // Only letters are early; whatever else there may come to be waits.
            output => self.carry_out(output),
        }
    }

    pub(super) fn addressed(
        &self,
        to: NodeId,
        letter: &LetterOf<Estate<M>>,
    ) -> Option<(PublicKey, String, Packet)> {
        let (key, address) = self.book.find(to)?;
        let bytes = holdoff_net::encode(letter).ok()?;
        Some((key, address, self.packet(Said::Letter(bytes))))
    }

    pub(super) fn packet(&self, said: Said) -> Packet {
        Packet { ledger: self.ledger, life: self.life, said }
    }

    /// A round has passed: where this node stands goes into the hint, and the hint to the core.
    pub(super) fn gossip_round(&mut self) {
        let now_us = clock::now_us();
        let standing = match self.core.leader() {
            Some(leader) if leader == self.me && self.core.is_ready() => Standing::Leads,
            Some(leader) => self.book.key(leader).map_or(Standing::Nobody, Standing::Follows),
            None => Standing::Nobody,
        };
        self.gossip.stand(now_us, standing);
        let sends = self.gossip.tick(now_us, self.rng.u64(..));
        self.whisper(sends);
        // Whoever is not named leaves it to another as soon as there is a claim; whoever is, runs when it is settled.
        let named = self.gossip.hint().map(|hint| hint.claim.leader);
        if named == Some(self.key) && self.gossip.leader(now_us) == named && now_us >= self.left_us {
            self.step(Input::ShouldLead(self.me));
        } else if let Some(id) = named.filter(|named| *named != self.key).and_then(|named| self.id_of(&named))
        {
            self.step(Input::ShouldLead(id));
        }
    }

    /// The hint follows whom it was handed over to: at once, or, if this one was named only lately, when others doubt it. For so
    /// long it does not run because it is named.
    fn leave_hint(&mut self, to: Option<PublicKey>) {
        let now_us = clock::now_us();
        self.left_us = now_us + 2 * self.settings.ledger.log.election_us;
        if let Some(Ok(sends)) = to.map(|to| self.gossip.hand_over(now_us, self.rng.u64(..), to)) {
            self.whisper(sends);
        }
    }

    /// Hearsay depends on no disk.
    pub(super) fn whisper(&mut self, sends: Vec<Send>) {
        for Send { to, message } in sends {
            let address = self.book.member(&to).map(|member| member.address);
            let (Some(address), Ok(bytes)) = (address, message.encode()) else { continue };
            self.counts.gossip_messages += 1;
            self.counts.gossip_bytes += bytes.len() as u64;
            self.lines.send(&to, &address, self.packet(Said::Gossip(bytes.into())));
        }
    }

    /// Something that only a leader can do.
    pub(super) fn lead(&mut self, wanted: Wanted, reply: oneshot::Sender<Led>) {
        let leader = self.core.leader();
        if leader != Some(self.me) || !self.core.is_ready() {
            let elsewhere =
                leader.filter(|leader| *leader != self.me).and_then(|leader| self.book.key(leader));
            drop(reply.send(Err(NotLed::Elsewhere(elsewhere.or_else(|| self.hearsay())))));
            return;
        }
        let Wanted::HandOver(to) = wanted;
        match to.or_else(|| self.furthest()).and_then(|to| self.id_of(&to)) {
            Some(to) => {
                self.led.push(reply);
                self.step(Input::HandOver(to));
            }
            None => drop(reply.send(Err(NotLed::Because("there is nobody else who votes".to_owned())))),
        }
    }

    /// The other voter that has come furthest, as far as is known.
    fn furthest(&self) -> Option<PublicKey> {
        let votes = |key: &PublicKey| {
            self.id_of(key).is_some_and(|id| id != self.me && self.core.state().voters().contains(id))
        };
        let told = self.heads.iter().filter(|(key, _)| votes(key));
        told.max_by_key(|(_, told)| told.head.index).map(|(key, _)| *key)
    }

    /// Entries after a place, as far as they are kept.
    pub(super) fn history(&self, after: Slot, limit: usize) -> History<M> {
        let first = self.core.first_kept();
        let from = after.next();
        if from < first {
            return Err(first);
        }
        let skipped = usize::try_from(from.0 - first.0).unwrap_or(usize::MAX);
        let entries = self.core.history.iter().skip(skipped).take(limit);
        let page = |(at, entry): (u64, &crate::Logged<Estate<M>>)| Page {
            index: Slot(from.0 + at),
            entry: entry.clone(),
        };
        Ok((0..).zip(entries).map(page).collect())
    }
}

//! The envelopes that peers send.

use std::cmp::Ordering;

use holdoff_net::PublicKey;

use super::{PeerStatus, ReceivedEnvelope, Task};
use crate::ledger::{Input, MessageOf};
use crate::runtime::roster::MembershipChange;
use crate::runtime::wire::{AppliedHead, Envelope};
use crate::runtime::{Error, NodeMachine, NodeState, clock};
use holdoff_paxos::{NodeId, Slot};

impl<M: NodeMachine> Task<M> {
    /// Handles an envelope of a peer that has proved its key.
    pub(super) fn handle_envelope(&mut self, received: ReceivedEnvelope) {
        let ReceivedEnvelope { from, incarnation, envelope } = received;
        if !self.address_book.contains(&from) {
            self.counts.unknown_senders += 1;
            return;
        }
        match envelope {
            Envelope::PeerStatus { address, head, refounded } => {
                if self.address_book.announce(&from, &address) {
                    tracing::info!(namespace = %self.namespace, peer = %from, %address, "found a member at another address");
                }
                let status = PeerStatus { incarnation, head, at_us: clock::now_us() };
                match refounded.cmp(&self.refounded) {
                    Ordering::Equal => self.handle_status(from, status),
                    // The peer has missed a recovery, and stops when it receives this node's status.
                    Ordering::Less => self.note_divergence(&from, head),
                    // The entries of this node's voters would split the ledger.
                    Ordering::Greater => {
                        let start = refounded.map_or(Slot(0), |refounding| refounding.start);
                        self.given_up = Some(Error::GivenUp { peer: from, start });
                    }
                }
            }
            Envelope::Message(bytes) => {
                let id = NodeId::derive(from.as_bytes(), incarnation);
                // A node with a new storage has another id, which the roster must contain first.
                if self.address_book.key(id) != Some(from) {
                    self.counts.unknown_senders += 1;
                    return;
                }
                match holdoff_net::decode::<MessageOf<NodeState<M>>>(&bytes) {
                    Ok(message) => self.step(Input::Message(id, message)),
                    Err(_) => self.counts.malformed += 1,
                }
            }
            Envelope::Gossip(bytes) => match holdoff_gossip::Message::decode(&bytes) {
                Ok(message) => {
                    let sends = self.gossip.receive(clock::now_us(), self.rng.u64(..), from, message);
                    self.send_gossip(sends);
                }
                Err(_) => self.counts.malformed += 1,
            },
            // The service reassembles fragments before it passes them on.
            Envelope::Fragment(..) => self.counts.malformed += 1,
        }
    }

    /// Records the status of a peer. The leader registers a peer that has returned with another storage.
    fn handle_status(&mut self, from: PublicKey, status: PeerStatus) {
        self.peer_statuses.insert(from, status);
        self.compare(&from, status.head);
        let known = self.driver.core().state().machine().first.get(&from).map(|member| member.incarnation);
        if self.driver.core().is_ready()
            && known.is_some_and(|incarnation| incarnation != Some(status.incarnation))
        {
            self.change_roster(MembershipChange::Connect(from, status.incarnation));
        }
    }

    /// Compares the hash of a peer at the same index. A difference means that a node is faulty: the operator must act.
    fn compare(&mut self, from: &PublicKey, theirs: AppliedHead) {
        let state = self.driver.core().state();
        if theirs.index == state.index() && theirs.hash != state.hash() {
            self.note_divergence(from, theirs);
        }
    }

    fn note_divergence(&mut self, from: &PublicKey, theirs: AppliedHead) {
        let AppliedHead { index, hash } = theirs;
        let mine = AppliedHead::of(self.driver.core().state());
        self.counts.diverged += 1;
        tracing::error!(
            namespace = %self.namespace, peer = %from, %index, theirs = %hash, mine = %mine.hash, mine_index = %mine.index,
            "found a peer with another history: stop both nodes and compare their disks"
        );
    }
}

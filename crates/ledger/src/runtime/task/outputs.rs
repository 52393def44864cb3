//! The outputs of the core, gossip, and the commands of the leader.

use holdoff_gossip::{LogRole, Transmit};
use holdoff_net::PublicKey;
use holdoff_paxos::{NodeId, Slot};
use tokio::sync::oneshot;

use super::{HistoryReply, LeaderError, LeaderReply, Task};
use crate::entry::Hash;
use crate::ledger::{Input, Message, MessageOf, Output, OutputOf};
use crate::machine::Either;
use crate::metrics;
use crate::runtime::snapshots::{ChunkRead, SnapshotJob};
use crate::runtime::wire::{Envelope, LeaderCommand, Packet};
use crate::runtime::{HistoryEntry, NodeMachine, NodeState, TransferRejection, clock};

impl<M: NodeMachine> Task<M> {
    pub(super) fn perform(&mut self, output: OutputOf<NodeState<M>>) {
        match output {
            Output::Send(to, message) => {
                if let Some((key, address, packet)) = self.addressed(to, &message) {
                    self.send_packet(&key, &address, packet);
                }
            }
            Output::SaveSnapshot(id) => {
                if let Some(content) = self.driver.core().unsaved_snapshot(id) {
                    self.begin(SnapshotJob::Save(id, content));
                }
            }
            Output::ExpectSnapshot(snapshot) => {
                if let Some(snapshot) = &snapshot {
                    let (index, chunks) = (snapshot.last.slot, snapshot.state.chunks);
                    tracing::info!(namespace = %self.namespace, %index, chunks, "began to receive a snapshot");
                }
                self.begin(SnapshotJob::Expect(snapshot));
            }
            Output::StoreChunk { snapshot, number, bytes } => {
                self.begin(SnapshotJob::Store { snapshot, number, bytes });
            }
            Output::LoadSnapshot(id, chunks) => self.begin(SnapshotJob::Load(id, chunks)),
            Output::ReadChunk { to, snapshot, number } => self.read_chunk(to, snapshot, number),
            Output::Compacted(through) => {
                // Each request for a snapshot has one output, in order.
                if let Some(caller) = self.compact_callers.pop_front() {
                    _ = caller.send(through);
                }
            }
            Output::LeadershipTransferred(to) => {
                let to = self.address_book.key(to);
                self.move_hint(to);
                for caller in std::mem::take(&mut self.transfer_callers) {
                    drop(caller.send(to.ok_or(LeaderError::NotLeader(None))));
                }
            }
            Output::Changed(voters, at) => {
                tracing::info!(namespace = %self.namespace, ?voters, %at, "changed the voters");
            }
            // The leader requests the change again at the next check, if the roster still requires it.
            Output::ChangeFailed(_, why) => {
                tracing::debug!(namespace = %self.namespace, %why, "failed to change the voters");
            }
            Output::TransferFailed(why) => {
                for caller in std::mem::take(&mut self.transfer_callers) {
                    drop(caller.send(Err(LeaderError::Rejected(TransferRejection::Log(why)))));
                }
            }
            Output::Ended(submission, outcome) => {
                metrics::ended(&self.namespace, &outcome);
                if let Some(caller) = self.callers.remove(&submission) {
                    drop(caller.send(outcome));
                }
            }
            Output::Rerouted { tx_id, from, to } => {
                tracing::warn!(namespace = %self.namespace, %tx_id, %from, %to, "rerouted a transaction to another leader");
            }
            Output::Answered { read, index, result } => {
                let Some(reader) = self.readers.remove(&read) else { return };
                let result = match result {
                    Ok(Either::Second(answer)) => Ok(answer),
                    Ok(Either::First(())) => return,
                    Err(failed) => Err(failed),
                };
                drop(reader.send(Ok((index, result))));
            }
            Output::NotAnswered(read, leader) => {
                let leader =
                    leader.and_then(|leader| self.address_book.key(leader)).or_else(|| self.hinted_leader());
                if let Some(reader) = self.readers.remove(&read) {
                    drop(reader.send(Err(leader)));
                }
            }
            Output::Diverged(divergence) => {
                tracing::error!(namespace = %self.namespace, %divergence, "stopped after a divergence: check the disk of this node");
            }
        }
    }

    fn begin(&self, job: SnapshotJob<NodeState<M>>) {
        if let Some(snapshots) = &self.snapshots {
            snapshots.begin(job);
        }
    }

    /// Sends a chunk, outside this task.
    fn read_chunk(&self, to: NodeId, snapshot: Hash, number: u64) {
        let (Some(snapshots), Some((key, address))) = (&self.snapshots, self.address_book.find(to)) else {
            return;
        };
        let (peers, ledger, incarnation) = (self.peers.clone(), self.ledger, self.incarnation);
        let reply = move |bytes| {
            let message: MessageOf<NodeState<M>> = Message::Chunk { snapshot, number, bytes };
            if let Ok(bytes) = holdoff_net::encode(&message) {
                peers.send(
                    &key,
                    &address,
                    Packet { ledger, incarnation, envelope: Envelope::Message(bytes) },
                );
            }
        };
        snapshots.read(ChunkRead { snapshot, number, reply: Box::new(reply) });
    }

    pub(super) fn addressed(
        &self,
        to: NodeId,
        message: &MessageOf<NodeState<M>>,
    ) -> Option<(PublicKey, String, Packet)> {
        let (key, address) = self.address_book.find(to)?;
        let bytes = holdoff_net::encode(message).ok()?;
        Some((key, address, self.packet(Envelope::Message(bytes))))
    }

    /// Sends a packet, or drops and counts it.
    pub(super) fn send_packet(&self, to: &PublicKey, address: &str, packet: Packet) {
        if !self.peers.send(to, address, packet) {
            metrics::dropped(&self.namespace, "out");
        }
    }

    pub(super) fn packet(&self, envelope: Envelope) -> Packet {
        Packet { ledger: self.ledger, incarnation: self.incarnation, envelope }
    }

    /// Performs a round of gossip: passes the role of this node to gossip, and the hint to the core.
    pub(super) fn gossip_round(&mut self) {
        let now_us = clock::now_us();
        let log_role = match self.driver.core().leader() {
            Some(leader) if leader == self.me && self.driver.core().is_ready() => LogRole::Leader,
            Some(leader) => self.address_book.key(leader).map_or(LogRole::Unknown, LogRole::Follower),
            None => LogRole::Unknown,
        };
        self.gossip.set_log_role(now_us, log_role);
        let sends = self.gossip.tick(now_us, self.rng.u64(..));
        self.send_gossip(sends);
        // A node that is not named yields as soon as there is a claim. The named node campaigns when the claim is settled.
        let named = self.gossip.hint().map(|hint| hint.claim.leader);
        if named == Some(self.key)
            && self.gossip.leader(now_us) == named
            && now_us >= self.ignore_hints_until_us
        {
            self.step(Input::ShouldLead(self.me));
        } else if let Some(id) = named.filter(|named| *named != self.key).and_then(|named| self.id_of(&named))
        {
            self.step(Input::ShouldLead(id));
        }
    }

    /// Moves the hint to the target of a leadership transfer. If this node was named too recently, gossip moves the hint
    /// later, when the voters suspect it. Until then this node does not campaign because of the hint.
    fn move_hint(&mut self, to: Option<PublicKey>) {
        let now_us = clock::now_us();
        self.ignore_hints_until_us = now_us + 2 * self.settings.ledger.log.election_us;
        if let Some(Ok(sends)) = to.map(|to| self.gossip.transfer_leadership(now_us, self.rng.u64(..), to)) {
            self.send_gossip(sends);
        }
    }

    /// Sends gossip messages at once: they depend on no record.
    pub(super) fn send_gossip(&mut self, sends: Vec<Transmit>) {
        for Transmit { to, message } in sends {
            let address = self.address_book.member(&to).map(|member| member.address);
            let (Some(address), Ok(bytes)) = (address, message.encode()) else { continue };
            self.counts.gossip_messages += 1;
            self.counts.gossip_bytes += bytes.len() as u64;
            self.send_packet(&to, &address, self.packet(Envelope::Gossip(bytes.into())));
        }
    }

    /// Executes a command of the leader.
    pub(super) fn execute(&mut self, command: LeaderCommand, reply: oneshot::Sender<LeaderReply>) {
        let leader = self.driver.core().leader();
        if leader != Some(self.me) || !self.driver.core().is_ready() {
            let known =
                leader.filter(|leader| *leader != self.me).and_then(|leader| self.address_book.key(leader));
            drop(reply.send(Err(LeaderError::NotLeader(known.or_else(|| self.hinted_leader())))));
            return;
        }
        let LeaderCommand::TransferLeadership(to) = command;
        match self.transfer_target(to) {
            Ok(to) => {
                self.transfer_callers.push(reply);
                self.step(Input::TransferLeadership(to));
            }
            Err(why) => drop(reply.send(Err(LeaderError::Rejected(why)))),
        }
    }

    /// Returns the voter that is to lead: the named one, or the other voter with the highest known applied index.
    fn transfer_target(&self, to: Option<PublicKey>) -> Result<NodeId, TransferRejection> {
        let voters = self.driver.core().state().voters();
        let other_voter =
            |key: &PublicKey| self.id_of(key).filter(|id| *id != self.me && voters.contains(*id));
        if let Some(key) = to {
            return other_voter(&key).ok_or(TransferRejection::NotAVoter(key));
        }
        if voters.acceptors().iter().all(|id| *id == self.me) {
            return Err(TransferRejection::NoOtherVoter);
        }
        let others = self.peer_statuses.iter().filter_map(|(key, status)| Some((other_voter(key)?, status)));
        let most_advanced = others.max_by_key(|(_, status)| status.head.index).map(|(id, _)| id);
        most_advanced.ok_or(TransferRejection::NoVoterStatus)
    }

    /// Returns at most `limit` entries after an index, if the node keeps them.
    pub(super) fn history(&self, after: Slot, limit: usize) -> HistoryReply<M> {
        let first = self.driver.core().first_kept();
        let from = after.next();
        if from < first {
            return Err(first);
        }
        let skipped = usize::try_from(from.0 - first.0).unwrap_or(usize::MAX);
        let entries = self.driver.core().history.iter().skip(skipped).take(limit);
        let entry_at = |(at, entry): (u64, &crate::LogEntry<NodeState<M>>)| HistoryEntry {
            index: Slot(from.0 + at),
            entry: entry.clone(),
        };
        Ok((0..).zip(entries).map(entry_at).collect())
    }
}

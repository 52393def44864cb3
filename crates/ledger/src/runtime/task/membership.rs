//! Membership: registers nodes in the roster, and changes the voters until they match the roster.

use holdoff_gossip::Electorate;
use holdoff_net::PublicKey;
use holdoff_paxos::{Configuration, NodeId};

use super::Task;
use crate::entry::{TxId, TxKey};
use crate::ledger::{Input, MAX_VOTERS, Message, MessageOf};
use crate::machine::{Either, StateMachine};
use crate::runtime::roster::{LedgerMember, MembershipChange};
use crate::runtime::status::{LedgerStatus, MemberStatus, NodeStatus, Role};
use crate::runtime::wire::{AppliedHead, Envelope};
use crate::runtime::{NodeMachine, NodeState, clock};

/// The maximum number of entries that a member may be behind when it becomes a voter.
const MAX_LAG: u64 = 1024;
/// The size up to which all members of a ledger tell each other their status.
const SMALL_LEDGER: usize = 10;
/// The age after which the status of a peer no longer counts.
const STATUS_MAX_AGE_US: u64 = 3_000_000;

impl<M: NodeMachine> Task<M> {
    /// Sends this node's status, registers its address, and, as the leader, adjusts the voters to the roster.
    pub(super) fn check_members(&mut self) {
        self.send_status();
        self.register();
        if self.driver.core().is_ready() {
            self.adjust_voters();
        }
    }

    /// Sends this node's status to the members that need it.
    fn send_status(&mut self) {
        let (state, leader) = (self.driver.core().state(), self.driver.core().leader());
        let (address, head, refounded) = (self.address.clone(), AppliedHead::of(state), self.refounded);
        let envelope = Envelope::PeerStatus { address, head, refounded };
        let leader = leader.and_then(|leader| self.address_book.key(leader));
        for (key, member) in status_receivers(self.address_book.members(), &self.key, leader.as_ref()) {
            self.send_packet(&key, &member.address, self.packet(envelope.clone()));
        }
    }

    /// Registers this node's address in the roster. The founder also adds its own row.
    fn register(&mut self) {
        let Some(change) = self.registration_change() else {
            self.registration = None;
            return;
        };
        let (now_us, lasts_us) = (clock::now_us(), self.settings.ledger.result_us);
        let (tx_id, since_us) = match self.registration {
            Some((tx_id, since_us)) if now_us.saturating_sub(since_us) < lasts_us => (tx_id, since_us),
            _ => (TxId(self.rng.u128(..)), now_us),
        };
        self.registration = Some((tx_id, since_us));
        // A node that is far behind must be able to register. The change is idempotent: it may be executed more than once.
        let tx = TxKey::never_expires(tx_id);
        if self.driver.core().leader().is_some() {
            self.submit_own(tx, change);
        } else {
            let goal = Either::First(change);
            self.send_to_a_voter(&Message::Submit { tx_id, birth: tx.birth, goal, relayed_for: None });
        }
    }

    /// Returns the change that corrects this node's row, or `None` if the row is correct or a member must add the node.
    fn registration_change(&self) -> Option<MembershipChange> {
        let address = self.address.clone();
        match self.driver.core().state().machine().first.get(&self.key) {
            Some(member) if member.address == address => None,
            Some(_) => Some(MembershipChange::Move(self.key, address)),
            None if self.driver.core().state().voters().contains(self.me) => {
                let mine = LedgerMember {
                    name: self.name(),
                    address,
                    votes: true,
                    incarnation: Some(self.incarnation),
                };
                Some(MembershipChange::Add(self.key, mine))
            }
            // The node has moved before it has received its own row, so it must not wait for it: the other nodes send
            // the entries to the old address.
            None => {
                let mut listed = self.listed_members.iter();
                let has_moved = listed.any(|(key, member)| *key == self.key && member.address != address);
                has_moved.then_some(MembershipChange::Move(self.key, address))
            }
        }
    }

    /// Sends a message to a random voter, which forwards it to the leader. A node with a new address knows no leader,
    /// because the other nodes still connect to its old address.
    fn send_to_a_voter(&mut self, message: &MessageOf<NodeState<M>>) {
        let voters = self.driver.core().state().voters().acceptors();
        let others: Vec<NodeId> = voters.iter().copied().filter(|id| *id != self.me).collect();
        let to = self.rng.choice(others);
        if let Some((key, address, packet)) = to.and_then(|to| self.addressed(to, message)) {
            self.send_packet(&key, &address, packet);
        }
    }

    fn name(&self) -> String {
        self.settings.name.clone().unwrap_or_else(|| self.key.to_string().chars().take(8).collect())
    }

    /// Changes one voter: first removes voters that should not vote, then adds members that have caught up.
    fn adjust_voters(&mut self) {
        let state = self.driver.core().state();
        let voters = state.voters().acceptors();
        let roster = &state.machine().first;
        let should_vote =
            |(key, member): (&PublicKey, &LedgerMember)| member.id(key).filter(|_| member.votes);
        let wanted: Vec<NodeId> = roster.iter().filter_map(should_vote).collect();
        if wanted.is_empty() {
            return;
        }
        let others_first = |id: &&NodeId| **id == self.me;
        let mut leaving: Vec<_> = voters.iter().filter(|id| !wanted.contains(id)).collect();
        leaving.sort_by_key(others_first);
        let joining = || {
            let new = roster.iter().filter_map(|(key, member)| Some((key, should_vote((key, member))?)));
            let mut new = new.filter(|(_, id)| !voters.contains(id));
            new.find(|(key, _)| voters.len() < MAX_VOTERS && self.has_caught_up(key)).map(|(_, id)| id)
        };
        let next: Vec<NodeId> = match (leaving.first(), joining()) {
            (Some(removed), _) if voters.len() > 1 => {
                voters.iter().copied().filter(|id| id != *removed).collect()
            }
            (_, Some(added)) => voters.iter().copied().chain([added]).collect(),
            _ => return,
        };
        if let Ok(next) = Configuration::new(next) {
            self.step(Input::ChangeConfiguration(next));
        }
    }

    /// Returns true if a member has sent its status recently and is not far behind.
    fn has_caught_up(&self, key: &PublicKey) -> bool {
        let index = self.driver.core().state().index().0;
        let recent = |at_us: u64| clock::now_us().saturating_sub(at_us) < STATUS_MAX_AGE_US;
        self.peer_statuses
            .get(key)
            .is_some_and(|status| recent(status.at_us) && status.head.index.0 + MAX_LAG >= index)
    }

    /// Compares the core with the last observation, and publishes the changes.
    pub(super) fn observe(&mut self) {
        if self.observed.index != self.driver.core().state().index() || self.observed.roster.is_none() {
            self.observed.index = self.driver.core().state().index();
            let roster = self.driver.core().state().machine().first.hash(&<_>::default());
            if self.observed.roster != Some(roster) {
                self.observed.roster = Some(roster);
                self.update_address_book();
                self.observed.voters.clear();
            }
            if self.observed.voters != self.driver.core().state().voters().acceptors() {
                self.observed.voters = self.driver.core().state().voters().acceptors().to_vec();
                self.update_electorate();
            }
        }
        if self.observed.leader != self.driver.core().leader() {
            self.observe_leader();
        }
        let state = self.driver.core().state();
        let head = AppliedHead::of(state);
        let node_status =
            NodeStatus { head, leader: self.leader_key(), leads: self.driver.core().is_ready() };
        self.node_status.send_if_modified(|last| {
            let is_news = *last != node_status;
            *last = node_status;
            is_news
        });
    }

    fn observe_leader(&mut self) {
        let (before, after) = (self.observed.leader, self.driver.core().leader());
        self.observed.leader = after;
        self.observed.leads_since_us = clock::now_us();
        let show = |node: Option<NodeId>| node.map_or("none".to_owned(), |node| node.to_string());
        self.register();
        tracing::info!(namespace = %self.namespace, from = show(before), to = show(after), "observed a change of leader");
    }

    /// Fills the address book from the roster, and, until this node is in the roster, from the list of its contact.
    pub(super) fn update_address_book(&mut self) {
        let roster = &self.driver.core().state().machine().first;
        let mut members: Vec<_> = roster.iter().map(|(key, member)| (*key, member.clone())).collect();
        if roster.get(&self.key).is_none_or(|member| member.incarnation != Some(self.incarnation)) {
            let unknown = self.listed_members.iter().filter(|(key, _)| roster.get(key).is_none());
            members.extend(unknown.cloned().collect::<Vec<_>>());
        }
        self.gossip.set_peers(members.iter().map(|(key, _)| *key).filter(|key| *key != self.key).collect());
        let ids = members.iter().filter_map(|(key, member)| member.id(key)).collect();
        self.address_book.replace(members);
        self.step(Input::Contacts(ids));
    }

    fn update_electorate(&mut self) {
        let keys = self
            .observed
            .voters
            .iter()
            .filter_map(|id| if *id == self.me { Some(self.key) } else { self.address_book.key(*id) });
        if let Ok(electorate) = Electorate::new(keys.collect::<Vec<_>>()) {
            self.gossip.set_electorate(clock::now_us(), electorate);
        }
    }

    pub(super) fn id_of(&self, key: &PublicKey) -> Option<NodeId> {
        self.address_book.member(key)?.id(key)
    }

    fn leader_key(&self) -> Option<PublicKey> {
        let Some(leader) = self.driver.core().leader() else { return self.hinted_leader() };
        if leader == self.me { Some(self.key) } else { self.address_book.key(leader) }
    }

    /// Returns the leader that gossip names, at a learner, to which the leader sends nothing. The hint may be false: the
    /// named node then replies that it does not lead.
    pub(super) fn hinted_leader(&self) -> Option<PublicKey> {
        let is_voter = self.driver.core().state().voters().contains(self.me);
        self.gossip.leader(clock::now_us()).filter(|leader| !is_voter && *leader != self.key)
    }

    /// Returns the detailed status of the node.
    pub(super) fn status(&self) -> LedgerStatus {
        let state = self.driver.core().state();
        let is_voter = state.voters().contains(self.me);
        let role = match self.driver.core().leader() {
            Some(leader) if leader == self.me && self.driver.core().is_ready() => Role::Leader,
            _ if !is_voter => Role::Learner,
            Some(leader) if leader != self.me => Role::Follower,
            _ => Role::Candidate,
        };
        let now_us = clock::now_us();
        let members = self
            .address_book
            .members()
            .into_iter()
            .map(|(key, member)| self.member_status(key, member, now_us));
        let promised = self.driver.core().store().promised();
        LedgerStatus {
            ledger: self.ledger,
            namespace: self.namespace.clone(),
            key: self.key,
            node: self.me,
            role,
            leader: self.leader_key(),
            term: (promised.start(), promised.attempt()),
            tenure: std::time::Duration::from_micros(now_us.saturating_sub(self.observed.leads_since_us)),
            head: AppliedHead::of(state),
            state_hash: state.machine().second.hash(&<_>::default()),
            certified: self.driver.core().certified(),
            pending: self.driver.core().pending(),
            members: members.collect(),
            counts: self.counts,
            core: *self.driver.core().counts(),
            hint: *self.gossip.counts(),
        }
    }

    fn member_status(&self, key: PublicKey, member: LedgerMember, now_us: u64) -> MemberStatus {
        let is_me = key == self.key;
        let state = self.driver.core().state();
        let mine = AppliedHead::of(state);
        let status = self
            .peer_statuses
            .get(&key)
            .filter(|status| now_us.saturating_sub(status.at_us) < STATUS_MAX_AGE_US);
        let votes = member.id(&key).is_some_and(|id| state.voters().contains(id));
        MemberStatus {
            key,
            head: if is_me { Some(mine) } else { status.map(|status| status.head) },
            is_reachable: is_me || status.is_some(),
            votes,
            member,
        }
    }
}

/// Returns the members that receive a node's status: all in a small ledger. In a large ledger only the leader receives it, or
/// all that should vote, while the node knows no leader.
fn status_receivers(
    mut members: Vec<(PublicKey, LedgerMember)>,
    me: &PublicKey,
    leader: Option<&PublicKey>,
) -> Vec<(PublicKey, LedgerMember)> {
    let is_member = members.iter().any(|(key, _)| key == me);
    members.retain(|(key, _)| key != me);
    if members.len() >= SMALL_LEDGER && is_member {
        members.retain(|(key, member)| leader.map_or(member.votes, |leader| key == leader));
    }
    members
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(count: u8) -> Vec<(PublicKey, LedgerMember)> {
        let member = |number: u8| LedgerMember {
            name: number.to_string(),
            address: format!("127.0.0.1:{number}"),
            votes: number < 3,
            incarnation: Some(1),
        };
        (0..count).map(|number| (PublicKey::from_bytes([number; 32]), member(number))).collect()
    }

    fn receivers(count: u8, leader: Option<u8>) -> Vec<String> {
        let leader = leader.map(|number| PublicKey::from_bytes([number; 32]));
        let found = status_receivers(members(count), &PublicKey::from_bytes([0; 32]), leader.as_ref());
        found.into_iter().map(|(_, member)| member.name).collect()
    }

    #[test]
    fn in_a_large_ledger_the_leader_receives_a_status_or_else_the_voters() {
        assert_eq!(receivers(10, Some(4)).len(), 9);
        assert_eq!(receivers(11, Some(4)), ["4"]);
        assert_eq!(receivers(11, None), ["1", "2"]);
    }
}

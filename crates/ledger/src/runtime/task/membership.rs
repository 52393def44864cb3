//! Members as they shall be: who is new is made known, and who shall vote does.

use holdoff_gossip::{Address, Electorate, MESH, Peer};
use holdoff_net::{PublicKey, Status as Linked};
use holdoff_paxos::{Configuration, NodeId};

use super::Task;
use crate::entry::TxId;
use crate::ledger::{Input, Letter, LetterOf, MAX_VOTERS};
use crate::machine::{Either, Machine};
use crate::runtime::roster::{Member, Wish};
use crate::runtime::status::{Glance, MemberStatus, Role, Status};
use crate::runtime::wire::{Head, Said};
use crate::runtime::{Estate, Housed, clock};

/// So many entries a member may be behind when it is made a voter.
const CLOSE: u64 = 1024;
/// What was told longer ago is not true any more.
const OLD_US: u64 = 3_000_000;

impl<M: Housed> Task<M> {
    /// Says that it is there; makes itself known; and if it leads, sees to it that those vote who shall.
    pub(super) fn look_after_members(&mut self) {
        self.tell_of_itself();
        self.introduce();
        if self.core.is_ready() {
            self.let_vote();
        }
        self.lose_the_unreached();
    }

    /// Where few are, all know how far all are; where many are, the leader does.
    fn tell_of_itself(&mut self) {
        let state = self.core.state();
        let said = Said::Here(Head { index: state.index(), hash: state.hash() });
        let others = self.book.members().into_iter().filter(|(key, _)| *key != self.key);
        let mut others: Vec<_> = others.collect();
        if others.len() >= MESH && self.book.has(&self.key) {
            let leader = self.core.leader().and_then(|leader| self.book.key(leader));
            others.retain(|(key, _)| Some(*key) == leader);
        }
        for (key, member) in others {
            self.lines.send(&key, &member.address, self.packet(said.clone()));
        }
    }

    /// Its own row says where it is. Whoever founded the ledger makes it.
    fn introduce(&mut self) {
        let Some(wish) = self.introduction() else {
            self.introducing = None;
            return;
        };
        let (now_us, lasts_us) = (clock::now_us(), self.settings.ledger.result_us);
        let (tx_id, since_us) = match self.introducing {
            Some((tx_id, since_us)) if now_us.saturating_sub(since_us) < lasts_us => (tx_id, since_us),
            _ => (TxId(self.rng.u128(..)), now_us),
        };
        self.introducing = Some((tx_id, since_us));
        let goal = Either::First(wish);
        if self.core.leader().is_some() {
            self.step(Input::Submit { tx_id, goal });
        } else {
            self.tell_a_voter(&Letter::Submit { tx_id, goal, relayed: false });
        }
    }

    /// What its row should say; nothing if it does, or if others must let it in first.
    fn introduction(&self) -> Option<Wish> {
        let address = self.address.clone();
        match self.core.state().machine().first.get(&self.key) {
            Some(member) if member.address == address => None,
            Some(_) => Some(Wish::Move(self.key, address)),
            None if self.core.state().voters().contains(self.me) => {
                let mine = Member { name: self.name(), address, votes: true, life: Some(self.life) };
                Some(Wish::Admit(self.key, mine))
            }
            None => None,
        }
    }

    /// Whoever has moved hears of nobody, for others look for it where it was. But it finds them, and a voter knows who leads.
    fn tell_a_voter(&mut self, letter: &LetterOf<Estate<M>>) {
        let voters = self.core.state().voters().acceptors();
        let others: Vec<NodeId> = voters.iter().copied().filter(|id| *id != self.me).collect();
        let to = self.rng.choice(others);
        if let Some((key, address, packet)) = to.and_then(|to| self.addressed(to, letter)) {
            self.lines.send(&key, &address, packet);
        }
    }

    fn name(&self) -> String {
        self.settings.name.clone().unwrap_or_else(|| self.key.to_string().chars().take(8).collect())
    }

    /// One comes or goes at a time: first those go who shall not vote any more, then those come who have caught up.
    fn let_vote(&mut self) {
        let state = self.core.state();
        let voters = state.voters().acceptors();
        let roster = &state.machine().first;
        let shall = |(key, member): (&PublicKey, &Member)| member.id(key).filter(|_| member.votes);
        let wanted: Vec<NodeId> = roster.iter().filter_map(shall).collect();
        if wanted.is_empty() {
            return;
        }
        let others_first = |id: &&NodeId| **id == self.me;
        let mut leaving: Vec<_> = voters.iter().filter(|id| !wanted.contains(id)).collect();
        leaving.sort_by_key(others_first);
        let coming = || {
            let new = roster.iter().filter_map(|(key, member)| Some((key, shall((key, member))?)));
            let mut new = new.filter(|(_, id)| !voters.contains(id));
            new.find(|(key, _)| voters.len() < MAX_VOTERS && self.is_close(key)).map(|(_, id)| id)
        };
        let next: Vec<NodeId> = match (leaving.first(), coming()) {
            (Some(gone), _) if voters.len() > 1 => voters.iter().copied().filter(|id| id != *gone).collect(),
            (_, Some(new)) => voters.iter().copied().chain([new]).collect(),
            _ => return,
        };
        if let Ok(next) = Configuration::new(next) {
            self.step(Input::Change(next));
        }
    }

    /// Whether a member was heard of lately, and is not far behind.
    fn is_close(&self, key: &PublicKey) -> bool {
        let index = self.core.state().index().0;
        let recent = |at_us: u64| clock::now_us().saturating_sub(at_us) < OLD_US;
        self.heads.get(key).is_some_and(|told| recent(told.at_us) && told.head.index.0 + CLOSE >= index)
    }

    /// In a partial view, whoever is not reached goes.
    fn lose_the_unreached(&mut self) {
        let peers: Vec<_> = self.gossip.sampling().peers().into_iter().map(|peer| peer.key).collect();
        for key in peers {
            if matches!(self.lines.status(&key), Some(Linked::Waiting { .. })) {
                self.gossip.lose(self.rng.u64(..), &key);
            }
        }
    }

    /// Looks at what has changed, and tells whoever must know.
    pub(super) fn look(&mut self) {
        if self.seen.index != self.core.state().index() || self.seen.roster.is_none() {
            self.seen.index = self.core.state().index();
            let roster = self.core.state().machine().first.hash(&<_>::default());
            if self.seen.roster != Some(roster) {
                self.seen.roster = Some(roster);
                self.write_book();
                self.seen.voters.clear();
            }
            if self.seen.voters != self.core.state().voters().acceptors() {
                self.seen.voters = self.core.state().voters().acceptors().to_vec();
                self.elect();
            }
        }
        if self.seen.leader != self.core.leader() {
            self.change_leader();
        }
        let state = self.core.state();
        let head = Head { index: state.index(), hash: state.hash() };
        let glance = Glance { head, leader: self.leader_key(), leads: self.core.is_ready() };
        self.glance.send_if_modified(|last| {
            let is_news = *last != glance;
            *last = glance;
            is_news
        });
    }

    fn change_leader(&mut self) {
        let (before, after) = (self.seen.leader, self.core.leader());
        self.seen.leader = after;
        self.seen.leads_since_us = clock::now_us();
        let show = |node: Option<NodeId>| node.map_or("nobody".to_owned(), |node| node.to_string());
        self.introduce();
        tracing::info!(namespace = %self.namespace, from = show(before), to = show(after), "the leader changed");
    }

    /// Those in the history are members; until this node is one of them, also those it was told of.
    pub(super) fn write_book(&mut self) {
        let roster = &self.core.state().machine().first;
        let mut members: Vec<_> = roster.iter().map(|(key, member)| (*key, member.clone())).collect();
        if roster.get(&self.key).is_none_or(|member| member.life != Some(self.life)) {
            let unknown = self.contacts.iter().filter(|(key, _)| roster.get(key).is_none());
            members.extend(unknown.cloned().collect::<Vec<_>>());
        }
        let others = members.iter().filter(|(key, _)| *key != self.key);
        let peers: Vec<_> = others.filter_map(|(key, member)| peer(key, &member.address)).collect();
        let is_all = peers.len() < MESH;
        self.gossip.meet(peers, is_all);
        let ids = members.iter().filter_map(|(key, member)| member.id(key)).collect();
        self.book.write(members);
        self.step(Input::Contacts(ids));
    }

    fn elect(&mut self) {
        let keys = self
            .seen
            .voters
            .iter()
            .filter_map(|id| if *id == self.me { Some(self.key) } else { self.book.key(*id) });
        if let Ok(electorate) = Electorate::new(keys.collect::<Vec<_>>()) {
            self.gossip.elect(clock::now_us(), electorate);
        }
    }

    pub(super) fn id_of(&self, key: &PublicKey) -> Option<NodeId> {
        self.book.member(key)?.id(key)
    }

    fn leader_key(&self) -> Option<PublicKey> {
        let Some(leader) = self.core.leader() else { return self.hearsay() };
        if leader == self.me { Some(self.key) } else { self.book.key(leader) }
    }

    /// Who leads by hearsay, for whoever does not vote: the leader sends it nothing. Whoever is asked there says if it is
    /// not so.
    pub(super) fn hearsay(&self) -> Option<PublicKey> {
        let is_voter = self.core.state().voters().contains(self.me);
        self.gossip.leader(clock::now_us()).filter(|leader| !is_voter && *leader != self.key)
    }

    /// How the node is doing.
    pub(super) fn status(&self) -> Status {
        let state = self.core.state();
        let is_voter = state.voters().contains(self.me);
        let role = match self.core.leader() {
            Some(leader) if leader == self.me && self.core.is_ready() => Role::Leads,
            _ if !is_voter => Role::Learns,
            Some(leader) if leader != self.me => Role::Follows,
            _ => Role::Looks,
        };
        let now_us = clock::now_us();
        let members =
            self.book.members().into_iter().map(|(key, member)| self.member_status(key, member, now_us));
        let promised = self.core.store().promised();
        Status {
            ledger: self.ledger,
            namespace: self.namespace.clone(),
            key: self.key,
            node: self.me,
            role,
            leader: self.leader_key(),
            term: (promised.start(), promised.attempt()),
            tenure: std::time::Duration::from_micros(now_us.saturating_sub(self.seen.leads_since_us)),
            head: Head { index: state.index(), hash: state.hash() },
            state_hash: state.machine().second.hash(&<_>::default()),
            certified: self.core.certified(),
            pending: self.core.pending(),
            members: members.collect(),
            counts: self.counts,
            core: *self.core.counts(),
            hint: *self.gossip.counts(),
        }
    }

    fn member_status(&self, key: PublicKey, member: Member, now_us: u64) -> MemberStatus {
        let is_me = key == self.key;
        let state = self.core.state();
        let mine = Head { index: state.index(), hash: state.hash() };
        let told = self.heads.get(&key).filter(|told| now_us.saturating_sub(told.at_us) < OLD_US);
        let votes = member.id(&key).is_some_and(|id| state.voters().contains(id));
        MemberStatus {
            key,
            head: if is_me { Some(mine) } else { told.map(|told| told.head) },
            is_here: is_me || told.is_some(),
            votes,
            member,
        }
    }
}

/// Somebody, for gossip.
pub(super) fn peer(key: &PublicKey, address: &str) -> Option<Peer> {
    Some(Peer { key: *key, address: Address::try_from(address.to_owned()).ok()? })
}

//! Holdoff's algorithm: gossip names the node that should lead, the voters' log decides which node leads.
//!
//! A voter that knows of no leader yields to the node that the hint names, for one election timeout, and only once in
//! each period without a leader. The named node campaigns as soon as the log allows it ([`Input::Campaign`]).

use std::convert::Infallible;

use holdoff_driver::{Driver, WriteOptions};
use holdoff_gossip::{self as gossip, LogRole, Settings, Transmit, Watch};
use holdoff_paxos::log::{self, Input, Options, Output, Store, Term};
use holdoff_paxos::{Configuration, NodeId as VoterId, Slot};

use super::node::{
    ElectionNode, FakeSigner, GROUP, Leadership, NodeConfig, SentTraffic, key, number, roll, up,
};
use crate::kernel::{self, NodeContext, NodeId, World};

/// The tick interval of a voter's log.
const TICK_US: u64 = 50_000;

/// A node of holdoff's algorithm: all nodes gossip, some vote.
pub(super) struct HoldoffNode {
    config: NodeConfig,
    gossip: gossip::Node<FakeSigner, FakeSigner>,
    round_us: u64,
    voter: Option<Voter>,
    outbox: Vec<(VoterId, LogMessage)>,
}

pub(super) struct HoldoffDisk {
    config: NodeConfig,
    sent: SentTraffic,
    store: Option<Store<Value, ()>>,
}

#[derive(Clone)]
pub(super) enum HoldoffMessage {
    Gossip(gossip::Message),
    Log(LogMessage),
}

#[derive(Clone, Copy)]
pub(super) enum HoldoffTimer {
    Round,
    Tick,
}

fn voter_id(node: NodeId) -> VoterId {
    VoterId(u128::from(node))
}

fn node_of(voter: VoterId) -> NodeId {
    NodeId::try_from(voter.0).unwrap_or(NodeId::MAX)
}

impl kernel::SimNode for HoldoffNode {
    type Message = HoldoffMessage;
    type Timer = HoldoffTimer;
    type Disk = HoldoffDisk;

    fn start(disk: &mut HoldoffDisk, context: &mut NodeContext<'_, Self>) -> Self {
        let (config, settings, now_us) = (disk.config.clone(), Settings::default(), context.now_us());
        let signer = FakeSigner(key(config.seed, context.me()));
        let watch = Watch::new(GROUP, signer, signer, config.electorate.clone(), &settings, now_us);
        let peers = config.others.iter().map(|other| key(config.seed, *other)).collect();
        let gossip = gossip::Node::new(watch, peers, &settings);
        let is_voter = context.me() < config.voters;
        let store = disk.store.clone().filter(|_| is_voter);
        let roll = context.rng().roll();
        let voter = store.map(|store| Voter::new(voter_id(context.me()), store, now_us, roll));
        let round_us = holdoff_policy::as_micros_u64(settings.round);
        let mut node = Self { config, gossip, round_us, voter, outbox: Vec::new() };
        node.round(disk, context);
        let phase_us = context.rng().between(0, round_us);
        context.set_timer(phase_us, HoldoffTimer::Round);
        if is_voter {
            let phase_us = context.rng().between(1, TICK_US);
            context.set_timer(phase_us, HoldoffTimer::Tick);
        }
        node
    }

    fn receive(
        &mut self,
        disk: &mut HoldoffDisk,
        from: NodeId,
        message: HoldoffMessage,
        context: &mut NodeContext<'_, Self>,
    ) {
        match message {
            HoldoffMessage::Gossip(message) => {
                let roll = roll(context);
                let from = key(self.config.seed, from);
                let sends = self.gossip.receive(context.now_us(), roll, from, message);
                Self::send_gossip(sends, disk, context);
            }
            HoldoffMessage::Log(message) => {
                self.vote(disk, context, |voter, turn| voter.receive(voter_id(from), message, turn));
            }
        }
    }

    fn wake(&mut self, disk: &mut HoldoffDisk, timer: HoldoffTimer, context: &mut NodeContext<'_, Self>) {
        match timer {
            HoldoffTimer::Round => {
                context.set_timer(self.round_us, HoldoffTimer::Round);
                self.round(disk, context);
            }
            HoldoffTimer::Tick => {
                context.set_timer(TICK_US, HoldoffTimer::Tick);
                self.follow_hint(disk, context);
                self.vote(disk, context, Voter::tick);
            }
        }
    }
}

impl HoldoffNode {
    fn round(&mut self, disk: &mut HoldoffDisk, context: &mut NodeContext<'_, Self>) {
        let roll = roll(context);
        let sends = self.gossip.tick(context.now_us(), roll);
        Self::send_gossip(sends, disk, context);
    }

    /// Passes the hint to the log. A node that is not named yields as soon as there is a claim; the named node campaigns
    /// when the claim is settled.
    fn follow_hint(&mut self, disk: &mut HoldoffDisk, context: &mut NodeContext<'_, Self>) {
        let (me, now_us) = (key(self.config.seed, context.me()), context.now_us());
        let Some(claimed) = self.gossip.hint().map(|hint| hint.claim.leader) else { return };
        if claimed != me {
            if let Some(voter) = &mut self.voter {
                voter.yield_to_named(now_us);
            }
        } else if self.config.named_campaigns && self.gossip.leader(now_us) == Some(me) {
            self.vote(disk, context, Voter::campaign);
        }
    }

    /// Gives the voter a turn, sends its messages, and passes the node's role to gossip.
    fn vote(
        &mut self,
        disk: &mut HoldoffDisk,
        context: &mut NodeContext<'_, Self>,
        turn: impl FnOnce(&mut Voter, StepContext<'_>),
    ) {
        let (Some(voter), Some(store)) = (&mut self.voter, &mut disk.store) else { return };
        let (now_us, roll) = (context.now_us(), context.rng().roll());
        turn(voter, StepContext { now_us, roll, store, outbox: &mut self.outbox });
        let log_role = match voter.leader() {
            Some(leader) if leader == voter_id(context.me()) => LogRole::Leader,
            Some(leader) => LogRole::Follower(key(self.config.seed, node_of(leader))),
            None => LogRole::Unknown,
        };
        self.gossip.set_log_role(now_us, log_role);
        for (to, message) in self.outbox.drain(..) {
            disk.sent.count(postcard::experimental::serialized_size(&message).unwrap_or(0));
            context.send(node_of(to), HoldoffMessage::Log(message));
        }
    }

    fn send_gossip(sends: Vec<Transmit>, disk: &mut HoldoffDisk, context: &mut NodeContext<'_, Self>) {
        for Transmit { to, message } in sends {
            disk.sent.count(message.encode().map_or(0, |bytes| bytes.len()));
            context.send(number(&to), HoldoffMessage::Gossip(message));
        }
    }
}

/// The latest term in which an entry was decided, and the time of the last observed decision.
#[derive(Default)]
pub(super) struct CommitObserver {
    latest: Option<Term>,
    looked_us: u64,
}

impl ElectionNode for HoldoffNode {
    type CommitObserver = CommitObserver;

    fn disk(config: NodeConfig) -> HoldoffDisk {
        let store = Voter::empty(config.voters);
        HoldoffDisk { config, sent: SentTraffic::default(), store }
    }

    fn sent(disk: &HoldoffDisk) -> SentTraffic {
        disk.sent
    }

    /// A voter follows the log, all other nodes follow the hint.
    fn known_leader(&self, now_us: u64) -> Option<NodeId> {
        match &self.voter {
            Some(voter) => voter.leader().map(node_of),
            None => self.gossip.leader(now_us).map(|leader| number(&leader)),
        }
    }

    fn is_voter(&self) -> bool {
        self.voter.is_some()
    }

    fn log_length(&self) -> Option<u64> {
        Some(self.voter.as_ref()?.store().decided().0)
    }

    /// Returns the node that leads the log and serves; if there are several, the one with the latest term, because the
    /// others have not noticed it yet.
    fn leadership(world: &World<Self>) -> Option<Leadership> {
        let serving = up(world).filter_map(|(id, node)| {
            let term = node.voter.as_ref()?.serves()?;
            Some(Leadership { leader: id, term: Some(term) })
        });
        serving.max_by_key(|leadership| leadership.term)
    }

    /// Returns whether a leader decided an entry after a later leader had decided one.
    fn has_two_leaders(world: &World<Self>, observer: &mut CommitObserver) -> bool {
        let voters = || up(world).filter_map(|(_, node)| node.voter.as_ref());
        let mut commits: Vec<_> =
            voters().flat_map(|voter| voter.commits_after(observer.looked_us)).collect();
        commits.sort_unstable();
        let mut has_two_leaders = false;
        for (at_us, term) in commits {
            has_two_leaders |= observer.latest > Some(term);
            observer.latest = observer.latest.max(Some(term));
            observer.looked_us = at_us;
        }
        has_two_leaders
    }

    fn diverged(world: &World<Self>) -> u64 {
        let stores: Vec<_> = up(world).filter_map(|(_, node)| Some(node.voter.as_ref()?.store())).collect();
        let Some(longest) = stores.iter().max_by_key(|store| store.decided()) else { return 0 };
        let differs =
            |store: &&Store<Value, ()>, slot: u64| store.entry(Slot(slot)) != longest.entry(Slot(slot));
        let diverged =
            |store: &&Store<Value, ()>| (1..=store.decided().0).filter(|slot| differs(store, *slot)).count();
        stores.iter().map(|store| diverged(store) as u64).sum()
    }
}

/// The values of the log: numbers.
type Value = u32;
type LogMessage = log::Message<Value, ()>;

/// The interval at which a leader proposes a new value.
const VALUE_EVERY_US: u64 = 1_000_000;

/// The time for which a leader's decisions are remembered.
const REMEMBERED_US: u64 = 1_000_000;

/// A voter and its state about hints.
struct Voter {
    options: Options,
    driver: Driver<log::Node<Value, ()>>,
    /// The time until which the voter yields, and whether it has yielded since it last knew a leader.
    yields: (u64, bool),
    next_value_us: u64,
    /// The times and terms of the voter's recent decisions as the leader.
    commits: Vec<(u64, Term)>,
}

/// The environment of one step: the time, a roll, and the destinations of records and messages.
struct StepContext<'a> {
    now_us: u64,
    roll: u32,
    store: &'a mut Store<Value, ()>,
    outbox: &'a mut Vec<(VoterId, LogMessage)>,
}

impl Voter {
    /// Creates an empty log with this number of voters.
    fn empty(voters: u32) -> Option<Store<Value, ()>> {
        let configuration = Configuration::new((0..voters).map(|node| VoterId(u128::from(node)))).ok()?;
        Some(Store::new(configuration, ()))
    }

    /// Resumes from the stored state.
    fn new(me: VoterId, store: Store<Value, ()>, now_us: u64, roll: u32) -> Self {
        let options = Options::default();
        let log = log::Node::new(me, options, store, now_us, roll);
        let (yields, commits) = ((0, false), Vec::new());
        let driver = Driver::new(log, WriteOptions::default());
        Self { options, driver, yields, next_value_us: 0, commits }
    }

    /// Returns the leader that the voter knows.
    fn leader(&self) -> Option<VoterId> {
        self.log().leader()
    }

    /// Returns the term in which the voter leads and serves.
    fn serves(&self) -> Option<Term> {
        self.log().leads().filter(|_| self.log().is_ready())
    }

    /// Returns the voter's decisions as the leader after this time.
    fn commits_after(&self, us: u64) -> impl Iterator<Item = (u64, Term)> + '_ {
        self.commits.iter().copied().filter(move |(at_us, _)| *at_us > us)
    }

    fn store(&self) -> &Store<Value, ()> {
        self.log().store()
    }

    fn log(&self) -> &log::Node<Value, ()> {
        self.driver.core()
    }

    /// Advances the time.
    fn tick(&mut self, mut turn: StepContext<'_>) {
        if self.log().leads().is_some() || turn.now_us >= self.yields.0 {
            self.step(Input::Tick, &mut turn);
        }
        if self.log().leader().is_some() {
            self.yields.1 = false;
        }
        if self.serves().is_some() && turn.now_us >= self.next_value_us {
            self.next_value_us = turn.now_us + VALUE_EVERY_US;
            self.step(Input::Propose(turn.roll), &mut turn);
        }
    }

    /// Handles the message of another voter.
    fn receive(&mut self, from: VoterId, message: LogMessage, mut turn: StepContext<'_>) {
        self.step(Input::Message(from, message), &mut turn);
    }

    /// Yields to another node that should lead, for one election timeout.
    fn yield_to_named(&mut self, now_us: u64) {
        if self.log().leader().is_none() && !self.yields.1 {
            self.yields = (now_us + self.options.election_us, true);
        }
    }

    /// Campaigns without waiting for the election timeout, unless the voter hears from another leader.
    fn campaign(&mut self, mut turn: StepContext<'_>) {
        self.yields.0 = 0;
        self.step(Input::Campaign, &mut turn);
    }

    fn step(&mut self, input: Input<Value, ()>, turn: &mut StepContext<'_>) {
        let decided = self.log().store().decided();
        let roll = &mut || turn.roll;
        self.driver.step(turn.now_us, roll, input);
        let stored = self.driver.write_through(turn.now_us, roll, |records| {
            for record in records {
                turn.store.apply(record);
            }
            Ok::<_, Infallible>(())
        });
        let Ok(()) = stored;
        for output in self.driver.take_outputs() {
            if let Output::Send(to, message) = output {
                turn.outbox.push((to, message));
            }
        }
        if let Some(term) = self.log().leads().filter(|_| self.log().store().decided() > decided) {
            self.commits.retain(|(us, _)| us + REMEMBERED_US > turn.now_us);
            self.commits.push((turn.now_us, term));
        }
    }
}

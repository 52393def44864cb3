//! A voter of the log, which heeds hints as the ledger does.
//!
//! A node that knows of no leader leaves it to the one that the hint names, for one patience and once for each time
//! without a leader. The one that is named, and has not heard of a leader for three heartbeats, runs for a trial at once,
//! and again after a heartbeat at the earliest.

use std::convert::Infallible;

use holdoff_paxos::log::{Input, Message, Node, Options, Output, Record, Store, Term};
use holdoff_paxos::{Configuration, NodeId};

/// What is decided: a number.
pub(super) type Value = u32;
pub(super) type Letter = Message<Value, ()>;

/// A leader has something new decided so often.
const VALUE_EVERY_US: u64 = 1_000_000;

/// How long it is remembered who decided something.
const REMEMBERED_US: u64 = 1_000_000;

/// A voter, and what it remembers of hints.
pub(super) struct Voter {
    me: NodeId,
    options: Options,
    log: Node<Value, ()>,
    /// Until when it leaves it to another, and whether it did so since it knew a leader.
    yields: (u64, bool),
    /// When a leader was last heard of.
    heard_us: u64,
    ran_us: u64,
    next_value_us: u64,
    /// When it decided something as the leader lately, and in which term.
    commits: Vec<(u64, Term)>,
}

/// Everything around one step: the time, chance, and where records and letters go.
pub(super) struct Turn<'a> {
    pub(super) now_us: u64,
    pub(super) roll: u32,
    pub(super) store: &'a mut Store<Value, ()>,
    pub(super) letters: &'a mut Vec<(NodeId, Letter)>,
}

impl Voter {
    /// An empty log that these decide.
    pub(super) fn empty(voters: u32) -> Option<Store<Value, ()>> {
        let configuration = Configuration::new((0..voters).map(|node| NodeId(u128::from(node)))).ok()?;
        Some(Store::new(configuration, ()))
    }

    /// Goes on from what it has stored.
    pub(super) fn new(me: NodeId, store: Store<Value, ()>, now_us: u64, roll: u32) -> Self {
        let options = Options::default();
        let log = Node::new(me, options, store, now_us, roll);
        let (yields, commits) = ((0, false), Vec::new());
        Self { me, options, log, yields, heard_us: 0, ran_us: 0, next_value_us: 0, commits }
    }

    /// Who leads, as far as it knows.
    pub(super) fn leader(&self) -> Option<NodeId> {
        self.log.leader()
    }

    /// The term it leads and serves in.
    pub(super) fn serves(&self) -> Option<Term> {
        self.log.leads().filter(|_| self.log.is_ready())
    }

    /// What it decided as the leader after this time.
    pub(super) fn commits_after(&self, us: u64) -> impl Iterator<Item = (u64, Term)> + '_ {
        self.commits.iter().copied().filter(move |(at_us, _)| *at_us > us)
    }

    pub(super) fn store(&self) -> &Store<Value, ()> {
        self.log.store()
    }

    /// Time has passed.
    pub(super) fn tick(&mut self, mut turn: Turn<'_>) {
        if self.log.leads().is_some() || turn.now_us >= self.yields.0 {
            self.step(Input::Tick, &mut turn);
        }
        if self.log.leader().is_some() {
            self.yields.1 = false;
        }
        if self.serves().is_some() && turn.now_us >= self.next_value_us {
            self.next_value_us = turn.now_us + VALUE_EVERY_US;
            self.step(Input::Propose(turn.roll), &mut turn);
        }
    }

    /// Another voter has said something.
    pub(super) fn hear(&mut self, from: NodeId, letter: Letter, mut turn: Turn<'_>) {
        self.step(Input::Message(from, letter), &mut turn);
        if self.log.leader() == Some(from) {
            self.heard_us = turn.now_us;
        }
    }

    /// Somebody else should lead, as it seems: it has time to.
    pub(super) fn leave_it(&mut self, now_us: u64) {
        if self.log.leader().is_none() && !self.yields.1 {
            self.yields = (now_us + self.options.election_us, true);
        }
    }

    /// This node should lead: it does not wait for its patience to end, unless it hears that another leads.
    pub(super) fn run(&mut self, mut turn: Turn<'_>) {
        let Options { heartbeat_us, election_us, .. } = self.options;
        let hears = turn.now_us < self.heard_us + 3 * heartbeat_us;
        if self.log.leads().is_some() || hears || turn.now_us < self.ran_us + heartbeat_us {
            return;
        }
        self.ran_us = turn.now_us;
        // A log that begins anew from its store, with its patience spent, runs at its next tick.
        let began_us = turn.now_us.saturating_sub(2 * election_us);
        self.log = Node::new(self.me, self.options, self.log.store().clone(), began_us, turn.roll);
        self.step(Input::Tick, &mut turn);
    }

    fn step(&mut self, input: Input<Value, ()>, turn: &mut Turn<'_>) {
        let decided = self.log.store().decided();
        let step = self.log.step(turn.now_us, turn.roll, input);
        let stored = step.release(|records: Vec<Record<Value, ()>>| {
            for record in records {
                turn.store.apply(record);
            }
            Ok::<_, Infallible>(())
        });
        let Ok(outputs) = stored;
        for output in outputs {
            if let Output::Send(to, letter) = output {
                turn.letters.push((to, letter));
            }
        }
        if let Some(term) = self.log.leads().filter(|_| self.log.store().decided() > decided) {
            self.commits.retain(|(us, _)| us + REMEMBERED_US > turn.now_us);
            self.commits.push((turn.now_us, term));
        }
    }
}

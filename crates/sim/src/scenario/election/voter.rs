//! A voter of the log, which follows hints as the ledger does.
//!
//! A node that knows of no leader yields to the node that the hint names, for one election timeout, and only once in
//! each period without a leader. The named node runs as soon as the log allows it ([`Input::Run`]).

use std::convert::Infallible;

use holdoff_paxos::log::{Input, Message, Node, Options, Output, Record, Store, Term};
use holdoff_paxos::{Configuration, NodeId};

/// The values of the log: numbers.
pub(super) type Value = u32;
pub(super) type Letter = Message<Value, ()>;

/// The interval at which a leader proposes a new value.
const VALUE_EVERY_US: u64 = 1_000_000;

/// The time for which a leader's decisions are remembered.
const REMEMBERED_US: u64 = 1_000_000;

/// A voter and its state about hints.
pub(super) struct Voter {
    options: Options,
    log: Node<Value, ()>,
    /// The time until which the voter yields, and whether it has yielded since it last knew a leader.
    yields: (u64, bool),
    next_value_us: u64,
    /// The times and terms of the voter's recent decisions as the leader.
    commits: Vec<(u64, Term)>,
}

/// The environment of one step: the time, a roll, and the destinations of records and messages.
pub(super) struct Turn<'a> {
    pub(super) now_us: u64,
    pub(super) roll: u32,
    pub(super) store: &'a mut Store<Value, ()>,
    pub(super) letters: &'a mut Vec<(NodeId, Letter)>,
}

impl Voter {
    /// Creates an empty log with this number of voters.
    pub(super) fn empty(voters: u32) -> Option<Store<Value, ()>> {
        let configuration = Configuration::new((0..voters).map(|node| NodeId(u128::from(node)))).ok()?;
        Some(Store::new(configuration, ()))
    }

    /// Resumes from the stored state.
    pub(super) fn new(me: NodeId, store: Store<Value, ()>, now_us: u64, roll: u32) -> Self {
        let options = Options::default();
        let log = Node::new(me, options, store, now_us, roll);
        let (yields, commits) = ((0, false), Vec::new());
        Self { options, log, yields, next_value_us: 0, commits }
    }

    /// Returns the leader that the voter knows.
    pub(super) fn leader(&self) -> Option<NodeId> {
        self.log.leader()
    }

    /// Returns the term in which the voter leads and serves.
    pub(super) fn serves(&self) -> Option<Term> {
        self.log.leads().filter(|_| self.log.is_ready())
    }

    /// Returns the voter's decisions as the leader after this time.
    pub(super) fn commits_after(&self, us: u64) -> impl Iterator<Item = (u64, Term)> + '_ {
        self.commits.iter().copied().filter(move |(at_us, _)| *at_us > us)
    }

    pub(super) fn store(&self) -> &Store<Value, ()> {
        self.log.store()
    }

    /// Advances the time.
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

    /// Handles the message of another voter.
    pub(super) fn hear(&mut self, from: NodeId, letter: Letter, mut turn: Turn<'_>) {
        self.step(Input::Message(from, letter), &mut turn);
    }

    /// Yields to another node that should lead, for one election timeout.
    pub(super) fn leave_it(&mut self, now_us: u64) {
        if self.log.leader().is_none() && !self.yields.1 {
            self.yields = (now_us + self.options.election_us, true);
        }
    }

    /// Runs for the lead without waiting for the election timeout, unless the voter hears from another leader.
    pub(super) fn run(&mut self, mut turn: Turn<'_>) {
        self.yields.0 = 0;
        self.step(Input::Run, &mut turn);
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

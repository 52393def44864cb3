//! The one task that owns a node's core.
//!
//! ```text
//! events ──▶ core ──▶ records and acts ──▶ writer ──▶ disk ──▶ acts: letters, answers
//! ```

mod hearing;
mod membership;
mod telling;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use holdoff_gossip::{Ed25519, Electorate, Group, Sampling, Watch};
use holdoff_net::{Key, PublicKey};
use holdoff_paxos::log::{self, Term};
use holdoff_paxos::{NodeId, Slot};
use tokio::sync::{mpsc, oneshot, watch};

use super::book::Book;
use super::identity::{LedgerId, Sealing, node_id};
use super::lines::Lines;
use super::roster::{Member, Wish};
use super::status::{Glance, Status};
use super::store::About;
use super::wire::{Head, Said, Wanted};
use super::writer::{Act, Batch, Batches};
use super::{AnswerOf, Error, Estate, GoalOf, Housed, Page, Settings, clock};
use crate::entry::TxId;
use crate::ledger::{self, How, Input, Ledger, Options, Outcome, OutputOf, ReadId, Verified};
use crate::machine::Failed;

/// So many events are taken in before the disk is asked.
const AT_ONCE: usize = 1024;
/// How often time is told to pass.
const BEAT: Duration = Duration::from_millis(25);
/// How often it is looked whether members are as they shall be.
const UPKEEP: Duration = Duration::from_millis(250);

/// What comes to a node.
pub(super) enum Event<M: Housed> {
    /// Another node has said something.
    Said { from: PublicKey, life: u64, said: Said },
    /// Somebody wants this done.
    Submit { tx_id: TxId, goal: GoalOf<M>, reply: oneshot::Sender<Outcome<AnswerOf<M>>> },
    /// Somebody wants to know something.
    Read { goal: M::Goal, how: How, reply: oneshot::Sender<Answered<M>> },
    /// Somebody wants something that only a leader can do.
    Lead { wanted: Wanted, reply: oneshot::Sender<Led> },
    /// Somebody wants so many entries after a place.
    History { after: Slot, limit: usize, reply: oneshot::Sender<History<M>> },
    /// Somebody wants to know how the node is doing.
    Status(oneshot::Sender<Status>),
    /// These are members, somebody has said.
    Learned(Vec<(PublicKey, Member)>),
    /// Somebody wants the history checked.
    Verify(oneshot::Sender<Verified>),
    /// Somebody wants a snapshot in the place of old entries.
    Compact(oneshot::Sender<Slot>),
    /// The disk has failed.
    Failed(Error),
    /// It shall end.
    Stop,
}

/// A read's answer, and up to where it knows; or who may have one.
pub(super) type Answered<M> =
    Result<(Slot, Result<<M as crate::machine::Machine>::Answer, Failed>), Option<PublicKey>>;
/// Whether the leader did it, and for whom; or who leads; or why not.
pub(super) type Led = Result<PublicKey, NotLed>;
/// Entries, or the first place that is still kept.
pub(super) type History<M> = Result<Vec<Page<M>>, Slot>;

/// Why a leader did not do it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum NotLed {
    /// Another leads, or nobody.
    Elsewhere(Option<PublicKey>),
    /// It has a reason.
    Because(String),
}

/// What a node is made of.
pub(super) struct Parts<M: Housed> {
    pub(super) namespace: String,
    pub(super) about: About,
    pub(super) key: Key,
    pub(super) life: u64,
    pub(super) address: String,
    pub(super) settings: Settings,
    pub(super) store: crate::ledger::Store<Estate<M>>,
    pub(super) contacts: Vec<(PublicKey, Member)>,
    pub(super) book: Arc<Book>,
    pub(super) lines: Arc<Lines>,
}

pub(super) struct Task<M: Housed> {
    namespace: String,
    ledger: LedgerId,
    me: NodeId,
    key: PublicKey,
    life: u64,
    address: String,
    settings: Settings,
    core: Ledger<Estate<M>, Sealing>,
    gossip: holdoff_gossip::Node<Key, Ed25519>,
    book: Arc<Book>,
    lines: Arc<Lines>,
    /// Whom it was told of when it came, until it sees itself among the members.
    contacts: Vec<(PublicKey, Member)>,
    rng: Rng,
    callers: BTreeMap<TxId, Vec<oneshot::Sender<Outcome<AnswerOf<M>>>>>,
    readers: BTreeMap<ReadId, oneshot::Sender<Answered<M>>>,
    led: Vec<oneshot::Sender<Led>>,
    next_read: u64,
    /// By which name it says where it is, and since when.
    introducing: Option<(TxId, u64)>,
    /// Until when it does not run for being named: it has handed over.
    left_us: u64,
    heads: BTreeMap<PublicKey, Told>,
    seen: Seen,
    glance: watch::Sender<Glance>,
    batch: Batch<Estate<M>>,
    /// What may be done at once, and what waits for the disk.
    early: Vec<OutputOf<Estate<M>>>,
    outputs: Vec<OutputOf<Estate<M>>>,
    /// What this node's disk has of its own term.
    stored: watch::Sender<Option<(Term, Slot)>>,
    counts: super::Counts,
}

/// What somebody has told of itself, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) life: u64,
    pub(super) head: Head,
    pub(super) at_us: u64,
}

/// What was so when it was last looked.
struct Seen {
    index: Slot,
    roster: Option<crate::machine::StateHash>,
    voters: Vec<NodeId>,
    leader: Option<NodeId>,
    leads_since_us: u64,
}

impl<M: Housed> Task<M> {
    pub(super) fn new(parts: Parts<M>) -> Result<(Self, watch::Receiver<Glance>), Error> {
        let Parts { namespace, about, key, life, address, settings, store, contacts, book, lines } = parts;
        let (now_us, mut rng) = (clock::now_us(), Rng::new());
        let me = node_id(&key.public(), life);
        let sealing = Sealing::new(about.ledger, key.clone(), life);
        // While this disk writes, others may write, too.
        let log = log::Options { early: true, ..settings.ledger.log };
        let options = Options { log, ..settings.ledger.clone() };
        let core = Ledger::new(me, options, sealing, store, now_us, rng.u32(..))?;
        let electorate = Electorate::new([key.public()]).map_err(|error| Error::NotNow(error.to_string()))?;
        let watch =
            Watch::new(Group(about.ledger.0), key.clone(), Ed25519, electorate, &settings.gossip, now_us);
        let myself =
            membership::peer(&key.public(), &address).ok_or_else(|| Error::Net(bad_address(&address)))?;
        let sampling = Sampling::new(myself, Vec::new(), true);
        let gossip = holdoff_gossip::Node::new(watch, sampling, &settings.gossip);
        let (glance, seen) = watch::channel(Glance::default());
        let task = Self {
            namespace,
            ledger: about.ledger,
            me,
            key: key.public(),
            life,
            address,
            settings,
            core,
            gossip,
            book,
            lines,
            contacts,
            rng,
            callers: BTreeMap::new(),
            readers: BTreeMap::new(),
            led: Vec::new(),
            next_read: 0,
            introducing: None,
            left_us: 0,
            heads: BTreeMap::new(),
            seen: Seen {
                index: Slot(0),
                roster: None,
                voters: Vec::new(),
                leader: None,
                leads_since_us: now_us,
            },
            glance,
            batch: Batch::default(),
            early: Vec::new(),
            outputs: Vec::new(),
            stored: watch::Sender::new(None),
            counts: super::Counts::default(),
        };
        Ok((task, seen))
    }

    /// Whether it finds itself among the members.
    pub(super) fn is_known(&self) -> bool {
        let mine = self.core.state().machine().first.get(&self.key);
        mine.is_some_and(|member| member.life == Some(self.life))
    }

    /// Runs until it is told to end, or nobody can tell it anything any more. Returns why it ended by itself.
    pub(super) async fn run(
        mut self,
        mut events: mpsc::Receiver<Event<M>>,
        disk: Batches<M>,
    ) -> Result<(), Error> {
        let mut beat = every(BEAT);
        let mut upkeep = every(UPKEEP);
        let mut round = every(self.settings.gossip.round);
        let mut taken = Vec::new();
        let mut stored = self.stored.subscribe();
        self.look();
        loop {
            tokio::select! {
                count = events.recv_many(&mut taken, AT_ONCE) => if count == 0 { return Ok(()) },
                Ok(()) = stored.changed() => {
                    let told = *stored.borrow_and_update();
                    if let Some((term, slot)) = told {
                        self.step(Input::Stored { term, slot });
                    }
                }
                _ = beat.tick() => self.step(Input::Tick),
                _ = round.tick() => self.gossip_round(),
                _ = upkeep.tick() => self.look_after_members(),
            }
            for event in taken.drain(..) {
                match event {
                    Event::Stop => return Ok(()),
                    Event::Failed(error) => return Err(error),
                    event => self.take(event),
                }
            }
            self.look();
            self.carry_out_all();
            if let Some(tear) = self.core.torn() {
                return Err(tear.clone().into());
            }
            if !self.batch.is_empty() && disk.send(std::mem::take(&mut self.batch)).await.is_err() {
                // The disk has said why, or will in a moment.
                return Err(last_words(&mut events).await);
            }
        }
    }

    fn take(&mut self, event: Event<M>) {
        match event {
            Event::Said { from, life, said } => self.hear(from, life, said),
            Event::Submit { tx_id, goal, reply } => {
                self.callers.entry(tx_id).or_default().push(reply);
                self.step(Input::Submit { tx_id, goal });
            }
            Event::Read { goal, how, reply } => {
                let read = ReadId(self.next_read);
                self.next_read += 1;
                self.readers.insert(read, reply);
                self.step(Input::Read { read, goal: crate::machine::Either::Second(goal), how });
            }
            Event::Lead { wanted, reply } => self.lead(wanted, reply),
            Event::History { after, limit, reply } => drop(reply.send(self.history(after, limit))),
            Event::Status(reply) => drop(reply.send(self.status())),
            Event::Verify(reply) => drop(reply.send(self.core.verify())),
            Event::Compact(reply) => {
                self.step(Input::Compact);
                let through = self.core.store().snapshot().last.slot;
                self.act(move || {
                    let _ = reply.send(through);
                });
            }
            Event::Learned(members) => {
                self.contacts = members;
                self.write_book();
            }
            Event::Failed(_) | Event::Stop => {}
        }
    }

    /// Something happens to the core. What it wants stored and done waits for the disk, but for what is early.
    fn step(&mut self, input: Input<Estate<M>>) {
        let mut step = self.core.step(clock::now_us(), self.rng.u32(..), input);
        self.early.extend(step.early());
        let records = &mut self.batch.records;
        // Acts are done behind the records of their batch and of all batches before it.
        let outputs = step.release(|step| {
            records.extend(step);
            Ok::<_, Infallible>(())
        });
        match outputs {
            Ok(outputs) => self.outputs.extend(outputs),
            Err(never) => match never {},
        }
    }

    /// What all steps since the last time want done, with as few messages as that takes.
    fn carry_out_all(&mut self) {
        if self.core.must_announce() {
            self.step(Input::Announce);
        }
        let most = self.settings.ledger.log.batch;
        let (mut early, mut outputs) = (std::mem::take(&mut self.early), std::mem::take(&mut self.outputs));
        ledger::join(&mut early, most);
        ledger::join(&mut outputs, most);
        for output in early {
            self.send_early(output);
        }
        for output in outputs {
            self.carry_out(output);
        }
    }

    fn act(&mut self, act: impl FnOnce() + Send + 'static) {
        self.batch.acts.push(Box::new(act) as Act);
    }

    /// Wants something done for its own sake.
    fn wish(&mut self, wish: Wish) {
        let tx_id = TxId(self.rng.u128(..));
        self.step(Input::Submit { tx_id, goal: crate::machine::Either::First(wish) });
    }
}

async fn last_words<M: Housed>(events: &mut mpsc::Receiver<Event<M>>) -> Error {
    const PATIENCE: Duration = Duration::from_secs(1);
    let failed = async {
        loop {
            match events.recv().await {
                Some(Event::Failed(error)) => return Some(error),
                Some(_) => {}
                None => return None,
            }
        }
    };
    let said = clock::within(PATIENCE, failed).await.ok().flatten();
    said.unwrap_or_else(|| Error::Disk("it has stopped".to_owned()))
}

fn every(time: Duration) -> tokio::time::Interval {
    let mut interval = clock::interval(time.max(Duration::from_millis(1)));
    interval.set_missed_tick_behavior(clock::MissedTickBehavior::Delay);
    interval
}

fn bad_address(address: &str) -> String {
    format!("{address:?} is no address that others can be told: at most 64 bytes, without blanks")
}

//! The one task that owns a device. It waits for whatever comes first, and for nothing else.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fastrand::Rng;
use holdoff_paxos::{Held, NodeId};
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use super::clock::{self, Instant};
use super::folder::Folder;
use super::line::{Common, Heeded, Line};
use super::measure::Measure;
use super::readers::{AGAIN, Readers};
use super::store::{About, Store};
use super::{Error, News, Settings, Status, Watched};
use crate::machine::Machine;
use crate::notary::Notary;
use crate::{
    Ask, Decided, Device, Input, Letter, OperationId, Outcome, Output, PublicKey, Record, Slot, node_id,
};

/// As many inputs are taken at once, to be stored together.
const BATCH: usize = 64;
/// As many wait at once until nothing is under way.
const SETTLING: usize = 256;

/// What is asked of the task.
pub(super) enum Command<M: Machine> {
    Submit(Submission<M>),
    State(oneshot::Sender<Arc<Decided<M>>>),
    Status(oneshot::Sender<Status>),
    /// Answered once everything is carried out that was decided before this was asked.
    CatchUp(oneshot::Sender<Result<Slot, Error>>),
    /// Answered once nothing is under way any more, nor to be handed in.
    Settle(oneshot::Sender<Result<(), Error>>),
    Stop(oneshot::Sender<()>),
}

pub(super) struct Submission<M: Machine> {
    pub(super) id: OperationId,
    pub(super) wish: M::Wish,
    pub(super) letter: Option<Letter>,
    pub(super) deadline: Duration,
    pub(super) reply: oneshot::Sender<Result<Outcome, Error>>,
}

#[expect(clippy::large_enum_variant, reason = "it is made, passed on and taken apart at once")]
enum Happened<M: Machine> {
    Heard(Heeded),
    Asked(Command<M>),
    Time,
}

type Unstored<M> = Held<Vec<Record<<M as Machine>::Wish>>, Vec<Output>>;

/// What may wait is stored when so many steps do, or when the first of them has waited for so long.
const BACKLOG: usize = 256;
const SOON: Duration = Duration::from_millis(10);

pub(super) struct Task<M: Machine> {
    device: Device<M>,
    store: Arc<Store>,
    /// What is to be stored, in its order, and to be done then.
    backlog: Vec<Unstored<M>>,
    store_at: Option<Instant>,
    is_urgent: bool,
    folder: Folder,
    settings: Settings,
    common: Common,
    lines: BTreeMap<NodeId, Line>,
    inbox: mpsc::Receiver<Heeded>,
    commands: mpsc::Receiver<Command<M>>,
    waiting: HashMap<OperationId, Vec<oneshot::Sender<Result<Outcome, Error>>>>,
    rotating: watch::Sender<Option<Rotation>>,
    /// What became of the new key: to be told once the device goes by it.
    rotated: Option<(OperationId, Outcome)>,
    readers: Readers,
    read_again: Instant,
    settling: Vec<oneshot::Sender<Result<(), Error>>>,
    stopping: Option<oneshot::Sender<()>>,
    news: broadcast::Sender<News>,
    key: watch::Sender<holdoff_net::Key>,
    view: Option<Arc<Decided<M>>>,
    started: Instant,
    rolls: Rng,
    measure: Measure,
}

/// An operation that gives the device another key, until it has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rotation {
    id: OperationId,
    to: PublicKey,
}

/// What anybody who has the handle may look at.
#[derive(Clone)]
pub(super) struct Views {
    pub(super) key: watch::Receiver<holdoff_net::Key>,
    pub(super) rotating: watch::Receiver<Option<Rotation>>,
}

/// What the handle keeps of a task.
pub(super) struct Doors<M: Machine> {
    pub(super) commands: mpsc::Receiver<Command<M>>,
    pub(super) news: broadcast::Sender<News>,
}

impl<M: Machine + Send + Sync + 'static> Task<M>
where
    M::Wish: Send + 'static,
{
    pub(super) fn new(
        folder: Folder,
        store: Store,
        about: &About,
        settings: Settings,
        doors: Doors<M>,
    ) -> Result<(Self, Views), Error> {
        let (device, key) = take_up::<M>(&folder, &store, about, &settings)?;
        let (heard, inbox) = mpsc::channel(1024);
        let common = Common {
            key: key.clone(),
            life: store.life(),
            council: about.council,
            options: settings.link.clone(),
            inbox: heard,
            applied: Arc::new(device.state().applied().0.into()),
        };
        let (key, current) = watch::channel(key);
        let (rotating, under_way) = watch::channel(rotation(&device));
        let started = clock::now();
        let mut task = Self {
            device,
            store: Arc::new(store),
            backlog: Vec::new(),
            store_at: None,
            is_urgent: false,
            folder,
            common,
            lines: BTreeMap::new(),
            inbox,
            commands: doors.commands,
            waiting: HashMap::new(),
            rotating,
            rotated: None,
            readers: Readers::default(),
            read_again: started,
            settling: Vec::new(),
            stopping: None,
            news: doors.news,
            key,
            view: None,
            started,
            rolls: clock::rolls(settings.seed),
            settings,
            measure: Measure::default(),
        };
        task.keep_lines()?;
        Ok((task, Views { key: current, rotating: under_way }))
    }

    /// Goes on until it is told to stop, nobody is left who could ask, or the disk fails.
    pub(super) async fn run(mut self) {
        let mut why = "it was told to".to_owned();
        while self.stopping.is_none()
            && let Some(happened) = self.next().await
        {
            if let Err(error) = self.turn(happened).await {
                tracing::error!(%error, "the device has stopped");
                why = error.to_string();
                break;
            }
        }
        if let Err(error) = self.store_backlog().await {
            tracing::error!(%error, "what was decided last was not stored, and will be asked for again");
        }
        let stopping = self.stopping.take();
        for reply in self.waiting.drain().flat_map(|(_, replies)| replies) {
            drop(reply.send(Err(Error::Stopped(why.clone()))));
        }
        // The disk is free for the next one before anybody hears of the end.
        drop(self);
        let _ = stopping.map(|reply| reply.send(()));
    }

    async fn next(&mut self) -> Option<Happened<M>> {
        let mut wake = clock::after_us(self.started, self.device.wake_at());
        if !self.readers.is_empty() {
            wake = wake.min(self.read_again);
        }
        wake = self.store_at.map_or(wake, |store_at| store_at.min(wake));
        if wake <= clock::now() {
            return Some(Happened::Time);
        }
        tokio::select! {
            heard = self.inbox.recv() => heard.map(Happened::Heard),
            asked = self.commands.recv() => asked.map(Happened::Asked),
            () = clock::sleep_until(wake) => Some(Happened::Time),
        }
    }

    /// Takes what has happened and whatever else has meanwhile, and stores it all at once.
    async fn turn(&mut self, first: Happened<M>) -> Result<(), Error> {
        let before = self.device.state().applied();
        self.take(first)?;
        for _ in 1..BATCH {
            let heard = self.inbox.try_recv().map(Happened::Heard);
            let Ok(more) = heard.or_else(|_| self.commands.try_recv().map(Happened::Asked)) else { break };
            self.take(more)?;
        }
        let is_time = self.store_at.is_some_and(|store_at| store_at <= clock::now());
        if self.is_urgent || is_time || self.backlog.len() >= BACKLOG {
            self.store_backlog().await?;
        }
        self.measure.counted(self.device.counts());
        if self.device.state().applied() != before {
            self.keep_key().await?;
        }
        self.end_rotation();
        if let Some((id, outcome)) = self.rotated.take() {
            self.answer(id, &outcome);
        }
        self.look_after_readers();
        self.look_after_the_settled();
        Ok(())
    }

    fn take(&mut self, happened: Happened<M>) -> Result<(), Error> {
        match happened {
            Happened::Time => return self.step(Input::Tick),
            Happened::Heard(Heeded { from, tell, tag }) => {
                self.readers.hear(from, tag, &tell);
                return self.step(Input::Told { from, tell });
            }
            Happened::Asked(Command::Submit(submission)) => return self.submit(submission),
            Happened::Asked(Command::State(reply)) => drop(reply.send(self.view())),
            Happened::Asked(Command::Status(reply)) => drop(reply.send(self.status())),
            Happened::Asked(Command::CatchUp(reply)) => {
                self.readers.take(reply);
                self.read_again = clock::now();
            }
            Happened::Asked(Command::Settle(reply)) => self.settle(reply),
            Happened::Asked(Command::Stop(reply)) => self.stopping = Some(reply),
        }
        Ok(())
    }

    /// Does at once what may be: the acceptors' disks are at work while this one's is.
    fn step(&mut self, input: Input<M::Wish>) -> Result<(), Error> {
        let now_us = clock::since_us(self.started);
        let (rolls, before) = (&mut self.rolls, self.device.state().applied());
        let step = self.device.step(now_us, &mut || rolls.u32(..), input);
        if self.device.state().applied() != before {
            self.common.applied.store(self.device.state().applied().0, Ordering::Relaxed);
            self.view = None;
            self.keep_lines()?;
        }
        for output in step.at_once {
            self.carry_out(output);
        }
        self.is_urgent |= step.is_urgent;
        if step.is_urgent || step.held.record().is_some() {
            self.backlog.push(step.held);
            self.store_at.get_or_insert_with(|| clock::now() + SOON);
        }
        Ok(())
    }

    fn submit(&mut self, submission: Submission<M>) -> Result<(), Error> {
        let Submission { id, wish, letter, deadline, reply } = submission;
        let successor = self.device.state().machine().successor(&wish);
        let under_way = self.device.pending().filter(|pending| *pending != id).count();
        let refused = match *self.rotating.borrow() {
            Some(rotation) if rotation.id != id => Some(Error::Rotating),
            _ if successor.is_some() && under_way > 0 => Some(Error::UnderWay(under_way)),
            _ => None,
        };
        if let Some(error) = refused {
            drop(reply.send(Err(error)));
            return Ok(());
        }
        if let Some(to) = successor {
            self.rotating.send_replace(Some(Rotation { id, to }));
        }
        self.waiting.entry(id).or_default().push(reply);
        let deadline_us = u64::try_from(deadline.as_micros()).unwrap_or(u64::MAX);
        let deadline_us = clock::since_us(self.started).saturating_add(deadline_us);
        self.measure.submitted(id);
        self.step(Input::Submit { id, wish, letter, deadline_us })
    }

    /// Stores what is to be stored, and does what waits for that.
    async fn store_backlog(&mut self) -> Result<(), Error> {
        (self.is_urgent, self.store_at) = (false, None);
        let steps = std::mem::take(&mut self.backlog);
        let released = if steps.iter().any(|step| step.record().is_some()) {
            let store = self.store.clone();
            let storing = move || {
                Held::release_all(steps, |records: Vec<Vec<Record<M::Wish>>>| {
                    store.write(records.into_iter().flatten())
                })
            };
            let stored = tokio::task::spawn_blocking(storing).await;
            stored.map_err(|error| Error::Stopped(error.to_string()))??
        } else {
            Held::release_all(steps, |_| Ok::<_, Error>(()))?
        };
        self.device.stored();
        for output in released.into_iter().flatten() {
            self.carry_out(output);
        }
        Ok(())
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Ask { to, ask } => {
                self.measure.asked(&ask);
                if let Some(line) = self.lines.get(&to) {
                    line.ask(ask, 0);
                }
            }
            Output::Ended { id, outcome } => {
                self.measure.ended(id, &outcome);
                let rotates = self.rotating.borrow().is_some_and(|rotation| rotation.id == id);
                if rotates && outcome != Outcome::Unknown {
                    self.rotated = Some((id, outcome));
                } else {
                    self.answer(id, &outcome);
                }
            }
            Output::Applied(applied) => {
                self.measure.applied(&applied, applied.author == self.device.key());
                // An error means that nobody listens.
                drop(self.news.send(News::Applied(Arc::new(applied))));
            }
            Output::Installed(slot) => drop(self.news.send(News::Installed(slot))),
        }
    }

    fn answer(&mut self, id: OperationId, outcome: &Outcome) {
        for reply in self.waiting.remove(&id).into_iter().flatten() {
            drop(reply.send(Ok(outcome.clone())));
        }
    }

    /// There is a line to everybody who decides, and to nobody else.
    fn keep_lines(&mut self) -> Result<(), Error> {
        let acceptors = self.device.state().machine().acceptors();
        // Who was removed and added at another address is the same one, and not where the line leads.
        self.lines.retain(|id, line| acceptors.get(id).is_some_and(|acceptor| line.leads_to(acceptor)));
        for (id, acceptor) in acceptors {
            if !self.lines.contains_key(id) {
                self.lines.insert(*id, Line::open(&self.common, acceptor)?);
            }
        }
        Ok(())
    }

    /// Goes on under another key, if that is the one the council knows now.
    async fn keep_key(&mut self) -> Result<(), Error> {
        let old = self.device.key();
        let Some(new) = successor(&self.folder, &old, self.device.state())? else { return Ok(()) };
        self.store_backlog().await?;
        let about = About { council: self.common.council, key: new };
        self.store.go_by(&new)?;
        let (device, key) = take_up::<M>(&self.folder, &self.store, &about, &self.settings)?;
        self.device = device;
        self.measure = Measure::default();
        self.common.key = key.clone();
        self.key.send_replace(key);
        self.lines.clear();
        self.keep_lines()?;
        self.folder.forget_key(&old);
        Ok(())
    }

    /// Once it is known whether there is another key, operations are taken in again. One that nobody will ever know
    /// is forgotten.
    fn end_rotation(&mut self) {
        let Some(rotation) = *self.rotating.borrow() else { return };
        if self.device.pending().any(|id| id == rotation.id) {
            return;
        }
        let is_used =
            self.device.key() == rotation.to || self.device.state().machine().may_propose(&rotation.to);
        if !is_used {
            self.folder.forget_key(&rotation.to);
        }
        self.rotating.send_replace(None);
    }

    fn settle(&mut self, reply: oneshot::Sender<Result<(), Error>>) {
        self.settling.retain(|reply| !reply.is_closed());
        if self.settling.len() < SETTLING {
            self.settling.push(reply);
        } else {
            drop(reply.send(Err(Error::Busy)));
        }
    }

    fn look_after_readers(&mut self) {
        if self.readers.is_empty() {
            return;
        }
        let Some(configuration) = self.device.state().configuration() else { return };
        self.readers.answer(self.device.state().applied(), &configuration);
        if self.read_again > clock::now() {
            return;
        }
        self.read_again = clock::now() + AGAIN;
        let after = self.device.state().applied();
        for (node, tag) in self.readers.unheard(&configuration) {
            if let Some(line) = self.lines.get(&node) {
                line.ask(Ask::Fetch { after }, tag);
            }
        }
    }

    fn look_after_the_settled(&mut self) {
        if !self.settling.is_empty() && !self.device.has_errands() && self.device.pending().next().is_none() {
            for reply in self.settling.drain(..) {
                let _ = reply.send(Ok(()));
            }
        }
    }

    fn view(&mut self) -> Arc<Decided<M>> {
        let device = &self.device;
        self.view.get_or_insert_with(|| Arc::new(device.state().clone())).clone()
    }

    fn status(&self) -> Status {
        let state = self.device.state();
        let watched = |(id, acceptor): (&NodeId, &crate::machine::Acceptor)| {
            let line = self.lines.get(id)?;
            Some(Watched { id: *id, acceptor: acceptor.clone(), health: line.health() })
        };
        Status {
            council: state.council(),
            key: self.device.key(),
            node: self.device.id(),
            is_member: state.machine().may_propose(&self.device.key()),
            applied: state.applied(),
            compacted: state.compacted(),
            chain: state.chain(),
            pending: self.device.pending().collect(),
            letters: self.device.letters().count(),
            round_trip: Duration::from_micros(self.device.round_trip_us()),
            acceptors: state.machine().acceptors().iter().filter_map(watched).collect(),
            counts: *self.device.counts(),
        }
    }
}

/// The device as it was left, and the key it goes by.
fn take_up<M: Machine>(
    folder: &Folder,
    store: &Store,
    about: &About,
    settings: &Settings,
) -> Result<(Device<M>, holdoff_net::Key), Error> {
    let key = folder.key(&about.key)?;
    let no_state = || Error::Disk("the state that is stored cannot be read".to_owned());
    let snapshot = store.snapshot()?.ok_or_else(no_state)?;
    let state = Decided::restore(about.council, &snapshot).ok_or_else(no_state)?;
    let me = node_id(&about.key, store.life());
    let notary = Notary::default();
    let signer = Box::new(notary.pen(key.clone()));
    let mut device = Device::new(me, signer, Box::new(notary), state, settings.device.clone());
    if snapshot.slot > Slot(0) {
        device.restore(Record::Snapshot(snapshot));
    }
    for record in store.load()? {
        device.restore(record);
    }
    // Killed between the decision about a new key and going over to it.
    let Some(new) = successor(folder, &about.key, device.state())? else { return Ok((device, key)) };
    store.go_by(&new)?;
    let about = About { key: new, ..about.clone() };
    take_up(folder, store, &about, settings)
}

/// What an earlier life has begun to give this device another key.
fn rotation<M: Machine>(device: &Device<M>) -> Option<Rotation> {
    let machine = device.state().machine();
    device.wishes().find_map(|(id, wish)| Some(Rotation { id, to: machine.successor(wish)? }))
}

/// The key of this device's that is a member's in place of the one it goes by.
fn successor<M: Machine>(
    folder: &Folder,
    old: &PublicKey,
    state: &Decided<M>,
) -> Result<Option<PublicKey>, Error> {
    if state.machine().may_propose(old) {
        return Ok(None);
    }
    Ok(folder.keys()?.into_iter().find(|key| state.machine().may_propose(key)))
}

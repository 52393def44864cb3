//! The task that owns a device. It waits for messages, commands and timers at once.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fastrand::Rng;
use holdoff_net::SignatureCache;
use holdoff_paxos::{Deferred, NodeId};
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use super::acceptor_link::{AcceptorLink, LinkContext, ReceivedReply};
use super::catch_ups::{AGAIN, CatchUps};
use super::clock::{self, Instant};
use super::folder::Folder;
use super::measure::MetricsRecorder;
use super::store::{DeviceIdentity, Store};
use super::{AcceptorStatus, CouncilEvent, DeviceStatus, Error, Settings};
use crate::machine::Machine;
use crate::{
    AcceptorRequest, CouncilState, Device, Input, Mail, OperationId, Outcome, Output, PublicKey, Record, Slot,
};

/// The maximum number of inputs that are processed together and stored in one transaction.
const BATCH: usize = 64;
/// The maximum number of callers that wait until no operation is pending.
const SETTLING: usize = 256;

/// A command of a handle.
pub(super) enum Command<M: Machine> {
    Submit(Submission<M>),
    State(oneshot::Sender<Arc<CouncilState<M>>>),
    Status(oneshot::Sender<DeviceStatus>),
    /// Answered when the device has applied every slot that was decided before the command.
    CatchUp(oneshot::Sender<Result<Slot, Error>>),
    /// Answered when no operation is pending and all mail and snapshots are delivered.
    Settle(oneshot::Sender<Result<(), Error>>),
    Stop(oneshot::Sender<()>),
}

pub(super) struct Submission<M: Machine> {
    pub(super) id: OperationId,
    pub(super) change: M::Change,
    pub(super) mail: Option<Mail>,
    pub(super) deadline: Duration,
    pub(super) reply: oneshot::Sender<Result<Outcome, Error>>,
}

#[expect(clippy::large_enum_variant, reason = "an event is created, passed on and matched at once")]
enum Event<M: Machine> {
    Reply(ReceivedReply),
    Command(Command<M>),
    Tick,
}

type Unstored<M> = Deferred<Vec<Record<<M as Machine>::Change>>, Vec<Output>>;

/// The task stores records that are not urgent after this many steps, or this long after the first of them.
const BACKLOG: usize = 256;
const SOON: Duration = Duration::from_millis(10);

pub(super) struct Task<M: Machine> {
    device: Device<M>,
    store: Arc<Store>,
    /// The records to store, in order, with the outputs that wait for them.
    backlog: Vec<Unstored<M>>,
    store_at: Option<Instant>,
    is_urgent: bool,
    folder: Folder,
    settings: Settings,
    context: LinkContext,
    links: BTreeMap<NodeId, AcceptorLink>,
    inbox: mpsc::Receiver<ReceivedReply>,
    commands: mpsc::Receiver<Command<M>>,
    waiting: HashMap<OperationId, Vec<oneshot::Sender<Result<Outcome, Error>>>>,
    rotating: watch::Sender<Option<Rotation>>,
    /// The outcome of a rotation, to be reported when the device uses the new key.
    rotated: Option<(OperationId, Outcome)>,
    catch_ups: CatchUps,
    read_again: Instant,
    settling: Vec<oneshot::Sender<Result<(), Error>>>,
    stopping: Option<oneshot::Sender<()>>,
    events: broadcast::Sender<CouncilEvent>,
    key: watch::Sender<holdoff_net::SecretKey>,
    view: Option<Arc<CouncilState<M>>>,
    started: Instant,
    rolls: Rng,
    metrics_recorder: MetricsRecorder,
}

/// A pending key rotation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rotation {
    id: OperationId,
    to: PublicKey,
}

/// The values that a handle can read without a command.
#[derive(Clone)]
pub(super) struct DeviceViews {
    pub(super) key: watch::Receiver<holdoff_net::SecretKey>,
    pub(super) rotating: watch::Receiver<Option<Rotation>>,
}

/// The task's ends of the channels to the handle.
pub(super) struct TaskChannels<M: Machine> {
    pub(super) commands: mpsc::Receiver<Command<M>>,
    pub(super) events: broadcast::Sender<CouncilEvent>,
}

impl<M: Machine + Send + Sync + 'static> Task<M>
where
    M::Change: Send + 'static,
{
    pub(super) fn new(
        folder: Folder,
        store: Store,
        identity: &DeviceIdentity,
        settings: Settings,
        channels: TaskChannels<M>,
    ) -> Result<(Self, DeviceViews), Error> {
        let (device, key) = open_device::<M>(&folder, &store, identity, &settings)?;
        let (heard, inbox) = mpsc::channel(1024);
        let context = LinkContext {
            key: key.clone(),
            incarnation: store.incarnation(),
            council: identity.council,
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
            context,
            links: BTreeMap::new(),
            inbox,
            commands: channels.commands,
            waiting: HashMap::new(),
            rotating,
            rotated: None,
            catch_ups: CatchUps::default(),
            read_again: started,
            settling: Vec::new(),
            stopping: None,
            events: channels.events,
            key,
            view: None,
            started,
            rolls: clock::rolls(settings.seed),
            settings,
            metrics_recorder: MetricsRecorder::default(),
        };
        task.sync_links()?;
        Ok((task, DeviceViews { key: current, rotating: under_way }))
    }

    /// Runs until it is stopped, the last handle is dropped, or the disk fails.
    pub(super) async fn run(mut self) {
        let mut why = "it was closed".to_owned();
        while self.stopping.is_none()
            && let Some(event) = self.next().await
        {
            if let Err(error) = self.turn(event).await {
                tracing::error!(%error, "stopped the device");
                why = error.to_string();
                break;
            }
        }
        if let Err(error) = self.store_backlog().await {
            tracing::error!(%error, "failed to store the last decisions; the device learns them again at its next start");
        }
        let stopping = self.stopping.take();
        for reply in self.waiting.drain().flat_map(|(_, replies)| replies) {
            drop(reply.send(Err(Error::Stopped(why.clone()))));
        }
        // The store is closed before a caller learns of the end.
        drop(self);
        let _ = stopping.map(|reply| reply.send(()));
    }

    async fn next(&mut self) -> Option<Event<M>> {
        let mut wake = clock::after_us(self.started, self.device.wake_at());
        if !self.catch_ups.is_empty() {
            wake = wake.min(self.read_again);
        }
        wake = self.store_at.map_or(wake, |store_at| store_at.min(wake));
        if wake <= clock::now() {
            return Some(Event::Tick);
        }
        tokio::select! {
            reply = self.inbox.recv() => reply.map(Event::Reply),
            command = self.commands.recv() => command.map(Event::Command),
            () = clock::sleep_until(wake) => Some(Event::Tick),
        }
    }

    /// Processes an event and all events that have arrived meanwhile, and stores their records together.
    async fn turn(&mut self, first: Event<M>) -> Result<(), Error> {
        let before = self.device.state().applied();
        self.take(first)?;
        for _ in 1..BATCH {
            let reply = self.inbox.try_recv().map(Event::Reply);
            let Ok(more) = reply.or_else(|_| self.commands.try_recv().map(Event::Command)) else { break };
            self.take(more)?;
        }
        let is_time = self.store_at.is_some_and(|store_at| store_at <= clock::now());
        if self.is_urgent || is_time || self.backlog.len() >= BACKLOG {
            self.store_backlog().await?;
        }
        self.metrics_recorder.counted(self.device.counts());
        if self.device.state().applied() != before {
            self.switch_key().await?;
        }
        self.end_rotation();
        if let Some((id, outcome)) = self.rotated.take() {
            self.answer(id, &outcome);
        }
        self.serve_catch_ups();
        self.serve_settled();
        Ok(())
    }

    fn take(&mut self, event: Event<M>) -> Result<(), Error> {
        match event {
            Event::Tick => return self.step(Input::Tick),
            Event::Reply(ReceivedReply { from, reply, tag }) => {
                self.catch_ups.record_reply(from, tag, &reply);
                return self.step(Input::Reply { from, reply });
            }
            Event::Command(Command::Submit(submission)) => return self.submit(submission),
            Event::Command(Command::State(reply)) => drop(reply.send(self.view())),
            Event::Command(Command::Status(reply)) => drop(reply.send(self.status())),
            Event::Command(Command::CatchUp(reply)) => {
                self.catch_ups.take(reply);
                self.read_again = clock::now();
            }
            Event::Command(Command::Settle(reply)) => self.settle(reply),
            Event::Command(Command::Stop(reply)) => self.stopping = Some(reply),
        }
        Ok(())
    }

    /// Runs a step of the core and performs its immediate outputs, so that the acceptors' disks work in parallel with
    /// this one.
    fn step(&mut self, input: Input<M::Change>) -> Result<(), Error> {
        let now_us = clock::since_us(self.started);
        let (rolls, before) = (&mut self.rolls, self.device.state().applied());
        let step = self.device.step(now_us, &mut || rolls.u32(..), input);
        if self.device.state().applied() != before {
            self.context.applied.store(self.device.state().applied().0, Ordering::Relaxed);
            self.view = None;
            self.sync_links()?;
        }
        for output in step.at_once {
            self.perform(output);
        }
        self.is_urgent |= step.is_urgent;
        if step.is_urgent || step.deferred.record().is_some() {
            self.backlog.push(step.deferred);
            self.store_at.get_or_insert_with(|| clock::now() + SOON);
        }
        Ok(())
    }

    fn submit(&mut self, submission: Submission<M>) -> Result<(), Error> {
        let Submission { id, change, mail, deadline, reply } = submission;
        let successor = self.device.state().machine().successor(&change);
        let under_way = self.device.pending().filter(|pending| *pending != id).count();
        let refused = match *self.rotating.borrow() {
            Some(rotation) if rotation.id != id => Some(Error::Rotating),
            _ if successor.is_some() && under_way > 0 => Some(Error::OperationsPending(under_way)),
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
        let deadline_us = holdoff_policy::as_micros_u64(deadline);
        let deadline_us = clock::since_us(self.started).saturating_add(deadline_us);
        self.metrics_recorder.submitted(id);
        self.step(Input::Submit { id, change, mail, deadline_us })
    }

    /// Stores the backlog and performs the outputs that waited for it.
    async fn store_backlog(&mut self) -> Result<(), Error> {
        (self.is_urgent, self.store_at) = (false, None);
        let steps = std::mem::take(&mut self.backlog);
        let released = if steps.iter().any(|step| step.record().is_some()) {
            let store = self.store.clone();
            let storing = move || {
                Deferred::release_all(steps, |records: Vec<Vec<Record<M::Change>>>| {
                    store.write(records.into_iter().flatten())
                })
            };
            let stored = tokio::task::spawn_blocking(storing).await;
            stored.map_err(|error| Error::Stopped(error.to_string()))??
        } else {
            Deferred::release_all(steps, |_| Ok::<_, Error>(()))?
        };
        self.device.stored();
        for output in released.into_iter().flatten() {
            self.perform(output);
        }
        Ok(())
    }

    fn perform(&mut self, output: Output) {
        match output {
            Output::Send { to, request } => {
                self.metrics_recorder.requested(&request);
                if let Some(link) = self.links.get(&to) {
                    link.request(request, 0);
                }
            }
            Output::Ended { id, outcome } => {
                self.metrics_recorder.ended(id, &outcome);
                let rotates = self.rotating.borrow().is_some_and(|rotation| rotation.id == id);
                if rotates && outcome != Outcome::Unknown {
                    self.rotated = Some((id, outcome));
                } else {
                    self.answer(id, &outcome);
                }
            }
            Output::Applied(applied) => {
                self.metrics_recorder.applied(&applied, applied.author == self.device.key());
                // An error means that there is no subscriber.
                drop(self.events.send(CouncilEvent::Applied(Arc::new(applied))));
            }
            Output::Installed(slot) => drop(self.events.send(CouncilEvent::Installed(slot))),
        }
    }

    fn answer(&mut self, id: OperationId, outcome: &Outcome) {
        for reply in self.waiting.remove(&id).into_iter().flatten() {
            drop(reply.send(Ok(outcome.clone())));
        }
    }

    /// Opens links to all current acceptors, and closes the others.
    fn sync_links(&mut self) -> Result<(), Error> {
        let acceptors = self.device.state().machine().acceptors();
        // An acceptor that was removed and added at another address has the same id and another link.
        self.links.retain(|id, link| acceptors.get(id).is_some_and(|acceptor| link.leads_to(acceptor)));
        for (id, acceptor) in acceptors {
            if !self.links.contains_key(id) {
                self.links.insert(*id, AcceptorLink::open(&self.context, acceptor)?);
            }
        }
        Ok(())
    }

    /// Switches to the new key, if the council has decided a rotation.
    async fn switch_key(&mut self) -> Result<(), Error> {
        let old = self.device.key();
        let Some(new) = successor(&self.folder, &old, self.device.state())? else { return Ok(()) };
        self.store_backlog().await?;
        let identity = DeviceIdentity { council: self.context.council, key: new };
        self.store.set_key(&new)?;
        let (device, key) = open_device::<M>(&self.folder, &self.store, &identity, &self.settings)?;
        self.device = device;
        self.metrics_recorder = MetricsRecorder::default();
        self.context.key = key.clone();
        self.key.send_replace(key);
        self.links.clear();
        self.sync_links()?;
        self.folder.forget_key(&old);
        Ok(())
    }

    /// Accepts operations again when a rotation has ended, and deletes the new key if the rotation failed.
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

    fn serve_catch_ups(&mut self) {
        if self.catch_ups.is_empty() {
            return;
        }
        let Some(configuration) = self.device.state().configuration() else { return };
        self.catch_ups.answer(self.device.state().applied(), &configuration);
        if self.read_again > clock::now() {
            return;
        }
        self.read_again = clock::now() + AGAIN;
        let after = self.device.state().applied();
        for (node, tag) in self.catch_ups.unanswered(&configuration) {
            if let Some(link) = self.links.get(&node) {
                link.request(AcceptorRequest::Fetch { after }, tag);
            }
        }
    }

    fn serve_settled(&mut self) {
        if !self.settling.is_empty()
            && !self.device.has_undelivered()
            && self.device.pending().next().is_none()
        {
            for reply in self.settling.drain(..) {
                let _ = reply.send(Ok(()));
            }
        }
    }

    fn view(&mut self) -> Arc<CouncilState<M>> {
        let device = &self.device;
        self.view.get_or_insert_with(|| Arc::new(device.state().clone())).clone()
    }

    fn status(&self) -> DeviceStatus {
        let state = self.device.state();
        let watched = |(id, acceptor): (&NodeId, &crate::machine::AcceptorInfo)| {
            let link = self.links.get(id)?;
            Some(AcceptorStatus { id: *id, acceptor: acceptor.clone(), health: link.health() })
        };
        DeviceStatus {
            council: state.council(),
            key: self.device.key(),
            node: self.device.id(),
            is_member: state.machine().may_propose(&self.device.key()),
            applied: state.applied(),
            compacted: state.compacted(),
            chain: state.chain(),
            pending: self.device.pending().collect(),
            unposted_mail: self.device.unposted_mail().count(),
            round_trip: Duration::from_micros(self.device.round_trip_us()),
            acceptors: state.machine().acceptors().iter().filter_map(watched).collect(),
            counts: *self.device.counts(),
        }
    }
}

/// Restores the device and its key from the directory.
fn open_device<M: Machine>(
    folder: &Folder,
    store: &Store,
    identity: &DeviceIdentity,
    settings: &Settings,
) -> Result<(Device<M>, holdoff_net::SecretKey), Error> {
    let key = folder.key(&identity.key)?;
    let no_state = || Error::Disk("the stored state cannot be decoded".to_owned());
    let snapshot = store.snapshot()?.ok_or_else(no_state)?;
    let state = CouncilState::restore(identity.council, &snapshot).ok_or_else(no_state)?;
    let me = NodeId::derive(identity.key.as_bytes(), store.incarnation());
    let signatures = SignatureCache::default();
    let signer = Box::new(signatures.signer(key.clone()));
    let mut device = Device::new(me, signer, Box::new(signatures), state, settings.device.clone());
    if snapshot.slot > Slot(0) {
        device.restore(Record::Snapshot(snapshot));
    }
    for record in store.load()? {
        device.restore(record);
    }
    // The process was killed between the decision of a rotation and the switch to the new key.
    let Some(new) = successor(folder, &identity.key, device.state())? else { return Ok((device, key)) };
    store.set_key(&new)?;
    let identity = DeviceIdentity { key: new, ..identity.clone() };
    open_device(folder, store, &identity, settings)
}

/// Returns the rotation that an earlier process has started.
fn rotation<M: Machine>(device: &Device<M>) -> Option<Rotation> {
    let machine = device.state().machine();
    device.pending_changes().find_map(|(id, change)| Some(Rotation { id, to: machine.successor(change)? }))
}

/// Returns the key of this device that has replaced its current key as a member.
fn successor<M: Machine>(
    folder: &Folder,
    old: &PublicKey,
    state: &CouncilState<M>,
) -> Result<Option<PublicKey>, Error> {
    if state.machine().may_propose(old) {
        return Ok(None);
    }
    Ok(folder.keys()?.into_iter().find(|key| state.machine().may_propose(key)))
}

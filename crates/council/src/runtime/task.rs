//! The task that owns a device.
//!
//! ```text
//! replies, commands, timers ──▶ driver of the device ──▶ writes ──▶ thread of the disk ──▶ driver ──▶ requests, answers
//! ```

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fastrand::Rng;
use holdoff_disk::DiskError;
use holdoff_driver::{DiskThread, Driver, WriteOptions, Written};
use holdoff_net::SignatureCache;
use holdoff_paxos::NodeId;
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

/// The maximum number of events that the task handles before it begins a write.
const BATCH: usize = 64;
/// The number of records, and of outputs, that wait for the disk from which on the task accepts no further events.
const MAX_UNWRITTEN: usize = 16 * 1024;
const MAX_HELD: usize = 16 * 1024;
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
    Written(Written),
    Tick,
}

pub(super) struct Task<M: Machine> {
    driver: Driver<Device<M>>,
    store: Arc<Store>,
    disk: DiskThread<Record<M::Change>>,
    writes: mpsc::UnboundedReceiver<Result<Written, Error>>,
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
    pub(super) incarnation: u64,
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
        let (started, store) = (clock::now(), Arc::new(store));
        let (finished, writes) = mpsc::unbounded_channel();
        let disk =
            DiskThread::start("council disk", store.clone(), move |result| drop(finished.send(result)))
                .map_err(DiskError::new)?;
        let mut task = Self {
            driver: Driver::new(device, WriteOptions::default()),
            store,
            disk,
            writes,
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
        let incarnation = task.context.incarnation;
        Ok((task, DeviceViews { incarnation, key: current, rotating: under_way }))
    }

    /// Runs until it is stopped, the last handle is dropped, or the disk fails.
    pub(super) async fn run(mut self) {
        let why: Arc<dyn std::error::Error + Send + Sync> = match self.run_until_stopped().await {
            Ok(()) => Arc::from(Box::from("it was closed")),
            Err(error) => {
                tracing::error!(%error, "stopped the device");
                Arc::new(error)
            }
        };
        let Self { disk, store, stopping, mut waiting, .. } = self;
        for reply in waiting.drain().flat_map(|(_, replies)| replies) {
            drop(reply.send(Err(Error::Stopped(why.clone()))));
        }
        // The store is closed before a caller learns of the end.
        drop(store);
        drop(tokio::task::spawn_blocking(move || disk.join()).await);
        let _ = stopping.map(|reply| reply.send(()));
    }

    async fn run_until_stopped(&mut self) -> Result<(), Error> {
        while self.stopping.is_none()
            && let Some(event) = self.next().await?
        {
            if let Err(error) = self.turn(event).await {
                if !matches!(error, Error::Disk(_))
                    && let Err(unstored) = self.flush().await
                {
                    tracing::error!(error = %unstored, "failed to store the last records of the device");
                }
                return Err(error);
            }
        }
        self.flush().await
    }

    async fn next(&mut self) -> Result<Option<Event<M>>, Error> {
        let write_at_us = self.driver.write_at_us().unwrap_or(u64::MAX);
        let mut wake = clock::after_us(self.started, self.driver.core().wake_at().min(write_at_us));
        if !self.catch_ups.is_empty() {
            wake = wake.min(self.read_again);
        }
        if wake <= clock::now() {
            return Ok(Some(Event::Tick));
        }
        let has_room = self.has_room();
        Ok(tokio::select! {
            reply = self.inbox.recv(), if has_room => reply.map(Event::Reply),
            command = self.commands.recv(), if has_room => command.map(Event::Command),
            finished = self.writes.recv() => Some(Event::Written(written(finished)?)),
            () = clock::sleep_until(wake) => Some(Event::Tick),
        })
    }

    fn has_room(&self) -> bool {
        self.driver.unwritten() < MAX_UNWRITTEN && self.driver.held() < MAX_HELD
    }

    /// Handles an event and all events that have arrived meanwhile, and begins one write for their records.
    async fn turn(&mut self, first: Event<M>) -> Result<(), Error> {
        let history = |core: &Device<M>| (core.state().applied(), core.removed_in());
        let before = history(self.driver.core());
        self.take(first)?;
        for _ in 1..BATCH {
            if !self.has_room() {
                break;
            }
            let reply = self.inbox.try_recv().map(Event::Reply);
            let Ok(more) = reply.or_else(|_| self.commands.try_recv().map(Event::Command)) else { break };
            self.take(more)?;
        }
        if let Some(write) = self.driver.begin_write(clock::since_us(self.started)) {
            self.disk.write(write);
        }
        self.metrics_recorder.counted(self.driver.core().counts());
        if history(self.driver.core()) != before {
            self.switch_key().await?;
        }
        self.end_rotation();
        if self.rotating.borrow().is_none()
            && let Some((id, outcome)) = self.rotated.take()
        {
            self.answer(id, &outcome);
        }
        self.serve_catch_ups();
        self.serve_settled();
        Ok(())
    }

    fn take(&mut self, event: Event<M>) -> Result<(), Error> {
        match event {
            Event::Tick => return self.step(Input::Tick),
            Event::Written(written) => return self.finish_write(written),
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

    /// Passes an input to the device. Outputs that wait for no record leave now, so that the acceptors' disks work in parallel
    /// with this one.
    fn step(&mut self, input: Input<M::Change>) -> Result<(), Error> {
        let (now_us, before) = (clock::since_us(self.started), self.driver.core().state().applied());
        self.driver.step(now_us, &mut || self.rolls.u32(..), input);
        self.perform_outputs(before)
    }

    /// Releases the outputs that waited for a write.
    fn finish_write(&mut self, written: Written) -> Result<(), Error> {
        let (now_us, before) = (clock::since_us(self.started), self.driver.core().state().applied());
        self.driver.finish_write(now_us, &mut || self.rolls.u32(..), written);
        self.perform_outputs(before)
    }

    fn perform_outputs(&mut self, before: Slot) -> Result<(), Error> {
        let applied = self.driver.core().state().applied();
        if applied != before {
            self.context.applied.store(applied.0, Ordering::Relaxed);
            self.view = None;
            self.sync_links()?;
        }
        for output in self.driver.take_outputs() {
            self.perform(output);
        }
        Ok(())
    }

    /// Waits until all records are on disk.
    async fn flush(&mut self) -> Result<(), Error> {
        loop {
            if let Some(write) = self.driver.begin_write_now() {
                self.disk.write(write);
            }
            if self.driver.is_stored() {
                return Ok(());
            }
            let written = written(self.writes.recv().await)?;
            self.finish_write(written)?;
        }
    }

    fn submit(&mut self, submission: Submission<M>) -> Result<(), Error> {
        let Submission { id, change, mail, deadline, reply } = submission;
        let successor = self.driver.core().state().machine().successor(&change);
        let under_way = self.driver.core().pending().filter(|pending| *pending != id).count();
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
                self.metrics_recorder.applied(&applied, applied.author == self.driver.core().key());
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
        let acceptors = self.driver.core().state().machine().acceptors();
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
        let old = self.driver.core().key();
        let removed = self.driver.core().removed_in().is_some();
        let Some(new) = successor(&self.folder, &old, removed, self.driver.core().state())? else {
            return Ok(());
        };
        self.flush().await?;
        let identity = DeviceIdentity { council: self.context.council, key: new };
        self.store.set_key(&new)?;
        self.folder.forget_key(&old);
        let (device, key) = open_device::<M>(&self.folder, &self.store, &identity, &self.settings)?;
        self.driver = Driver::new(device, WriteOptions::default());
        self.metrics_recorder = MetricsRecorder::default();
        self.context.key = key.clone();
        self.key.send_replace(key);
        self.links.clear();
        self.sync_links()
    }

    /// Accepts operations again when a rotation has ended, and deletes the new key if the rotation failed.
    fn end_rotation(&mut self) {
        let Some(rotation) = *self.rotating.borrow() else { return };
        // After a crash the device resumes a rotation whose end is not on disk, and then needs its key.
        if !self.driver.is_stored() || self.driver.core().pending().any(|id| id == rotation.id) {
            return;
        }
        let is_used = self.driver.core().key() == rotation.to
            || self.driver.core().state().machine().may_propose(&rotation.to);
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
        let Some(configuration) = self.driver.core().state().configuration() else { return };
        self.catch_ups.answer(self.driver.core().state().applied(), &configuration);
        if self.read_again > clock::now() {
            return;
        }
        self.read_again = clock::now() + AGAIN;
        let after = self.driver.core().state().applied();
        for (node, tag) in self.catch_ups.unanswered(&configuration) {
            if let Some(link) = self.links.get(&node) {
                link.request(AcceptorRequest::Fetch { after }, tag);
            }
        }
    }

    fn serve_settled(&mut self) {
        if !self.settling.is_empty()
            && self.driver.is_stored()
            && !self.driver.core().has_undelivered()
            && self.driver.core().pending().next().is_none()
        {
            for reply in self.settling.drain(..) {
                let _ = reply.send(Ok(()));
            }
        }
    }

    fn view(&mut self) -> Arc<CouncilState<M>> {
        let device = self.driver.core();
        self.view.get_or_insert_with(|| Arc::new(device.state().clone())).clone()
    }

    fn status(&self) -> DeviceStatus {
        let state = self.driver.core().state();
        let watched = |(id, acceptor): (&NodeId, &crate::machine::AcceptorInfo)| {
            let link = self.links.get(id)?;
            Some(AcceptorStatus { id: *id, acceptor: acceptor.clone(), health: link.health() })
        };
        DeviceStatus {
            council: state.council(),
            key: self.driver.core().key(),
            node: self.driver.core().id(),
            is_member: state.machine().may_propose(&self.driver.core().key())
                && self.driver.core().removed_in().is_none(),
            applied: state.applied(),
            compacted: state.compacted(),
            chain: state.chain(),
            pending: self.driver.core().pending().collect(),
            unposted_mail: self.driver.core().unposted_mail().count(),
            round_trip: Duration::from_micros(self.driver.core().round_trip_us()),
            acceptors: state.machine().acceptors().iter().filter_map(watched).collect(),
            counts: *self.driver.core().counts(),
        }
    }
}

/// Returns the result of the next write.
fn written(finished: Option<Result<Written, Error>>) -> Result<Written, Error> {
    finished.ok_or_else(|| DiskError::new("the disk's thread has stopped without a reason"))?
}

/// Restores the device and its key from the directory.
pub(super) fn open_device<M: Machine>(
    folder: &Folder,
    store: &Store,
    identity: &DeviceIdentity,
    settings: &Settings,
) -> Result<(Device<M>, holdoff_net::SecretKey), Error> {
    let key = folder.key(&identity.key)?;
    let no_state = || DiskError::new("the stored state cannot be decoded");
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
    let Some(new) = successor(folder, &identity.key, false, device.state())? else {
        return Ok((device, key));
    };
    store.set_key(&new)?;
    let identity = DeviceIdentity { key: new, ..identity.clone() };
    open_device(folder, store, &identity, settings)
}

/// Returns the rotation that an earlier process has started.
fn rotation<M: Machine>(device: &Device<M>) -> Option<Rotation> {
    let machine = device.state().machine();
    device.pending_changes().find_map(|(id, change)| Some(Rotation { id, to: machine.successor(change)? }))
}

/// Returns the key of this device that has replaced its current key as a member. If the acceptors have deleted the slot
/// that removed the current key, only they can tell whether it is the other key of an unfinished rotation.
fn successor<M: Machine>(
    folder: &Folder,
    old: &PublicKey,
    was_removed: bool,
    state: &CouncilState<M>,
) -> Result<Option<PublicKey>, Error> {
    if state.machine().may_propose(old) && !was_removed {
        return Ok(None);
    }
    let is_other = |key: &PublicKey| key != old && (was_removed || state.machine().may_propose(key));
    Ok(folder.keys()?.into_iter().find(is_other))
}

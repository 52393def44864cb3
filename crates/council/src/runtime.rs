//! The runtime of a device: its directory, its links to the acceptors, and the task that owns the core.
//!
//! ```text
//! folder.rs     the directory: the store and the keys   store.rs          the device's records, one transaction a step
//! task.rs       the task that owns a device             acceptor_link.rs  the link to one acceptor
//! catch_ups.rs  callers that wait for decided slots     events.rs         the events that subscribers receive
//! founding.rs   creates a council                       joining.rs        joins a council by invitation
//! recovering.rs founds a council on the survivors of one that has lost a majority of its acceptors
//! ```
//!
//! # Invariants
//!
//! - The device sends a message only after the records that the message depends on are on disk: a
//!   [`Driver`](holdoff_driver::Driver) releases it.
//! - The task never sleeps: a wait is a timer in the same `select` as messages and commands.
//! - An acceptor counts only while its store has the incarnation with which it was added.
//! - Only one process at a time can have a device open.

mod acceptor_link;
mod catch_ups;
mod clock;
mod error;
mod events;
mod folder;
mod founding;
mod invitation;
mod joining;
mod measure;
mod recovering;
mod store;
mod task;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use holdoff_disk::DiskError;
use holdoff_net::LinkOptions;
use tokio::sync::{broadcast, mpsc, oneshot};

pub use acceptor_link::AcceptorHealth;
pub use error::Error;
pub use events::{CouncilEvent, EventSubscription};
pub use founding::identify_acceptor;
pub use holdoff_net::PeerAddress;
pub use joining::{Joined, Joining};
pub use recovering::RecoveredCouncil;

use crate::machine::{AcceptorInfo, CouncilChange, InvalidOperation, Machine, Members, Revalidation};
use crate::{
    CouncilId, CouncilState, DeviceCounters, Digest, Mail, NodeId, NotCommitted, OperationId, Options,
    Outcome, PublicKey, Slot,
};
use folder::Folder;
use founding::introduce;
use invitation::Invitation;
use store::Store;
use task::{Command, DeviceViews, Submission, Task, TaskChannels};

/// The default deadline of an operation.
pub const DEADLINE: Duration = Duration::from_secs(30);
/// The maximum number of queued commands of a device. Further callers wait.
const COMMAND_QUEUE: usize = 256;
/// The maximum length of a subscriber's event queue.
const MOST_NEWS: usize = 1 << 20;
/// The maximum number of attempts to read a key and a state that belong together.
const LOOKS: usize = 3;
/// The time after the deadline at which a caller without an outcome gets [`Outcome::Unknown`].
const GRACE: Duration = Duration::from_secs(2);

/// The settings of a device.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The options of the core.
    pub device: Options,
    /// The options of the links to acceptors.
    pub link: LinkOptions,
    /// The maximum number of events that wait for a subscriber. A slower subscriber learns how many it missed. 1024.
    pub event_queue: usize,
    /// The seed of the random number generator, for tests. By default it is drawn.
    pub seed: Option<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { device: Options::default(), link: LinkOptions::default(), event_queue: 1024, seed: None }
    }
}

/// The status of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceStatus {
    /// The council.
    pub council: CouncilId,
    /// The key of the device.
    pub key: PublicKey,
    /// The device's id in ballots.
    pub node: NodeId,
    /// Whether the device is a member, as far as it knows.
    pub is_member: bool,
    /// The last slot that the device has applied.
    pub applied: Slot,
    /// The slot of the last compaction, after which every device took a snapshot.
    pub compacted: Slot,
    /// The hash of the whole history.
    pub chain: Digest,
    /// The pending operations.
    pub pending: Vec<OperationId>,
    /// The number of mail messages that no majority has stored yet.
    pub unposted_mail: usize,
    /// The measured time between a request and its answer.
    pub round_trip: Duration,
    /// The acceptors that decide the next slot.
    pub acceptors: Vec<AcceptorStatus>,
    /// The counters since the start.
    pub counts: DeviceCounters,
}

/// The status of an acceptor, as this device sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AcceptorStatus {
    /// The acceptor's node id.
    pub id: NodeId,
    /// The acceptor's key, incarnation and address.
    pub acceptor: AcceptorInfo,
    /// The health of the link to the acceptor.
    pub health: AcceptorHealth,
}

/// A handle to a running device of a council. The device stops when the last clone is dropped.
pub struct Council<M: Machine> {
    commands: mpsc::Sender<Command<M>>,
    events: broadcast::WeakSender<CouncilEvent>,
    views: DeviceViews,
    folder: Arc<Folder>,
}

impl<M: Machine> Clone for Council<M> {
    fn clone(&self) -> Self {
        let Self { commands, events, views, folder } = self;
        Self {
            commands: commands.clone(),
            events: events.clone(),
            views: views.clone(),
            folder: folder.clone(),
        }
    }
}

impl<M: Machine> fmt::Debug for Council<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Council(in {})", self.folder.path().display())
    }
}

impl<M: Machine + Send + Sync + 'static> Council<M>
where
    M::Change: Send + 'static,
{
    /// Opens the device in this directory. It continues where it stopped.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub fn open(path: impl AsRef<Path>, settings: Settings) -> Result<Self, Error> {
        let folder = Folder::find(path.as_ref())?;
        let store = Store::open(&folder.store_path())?;
        let identity = store.identity()?.ok_or_else(|| Error::NotADevice(folder.path().to_owned()))?;
        let (commands, requests) = mpsc::channel(COMMAND_QUEUE);
        let (events, _) = broadcast::channel(settings.event_queue.clamp(1, MOST_NEWS));
        let channels = TaskChannels { commands: requests, events: events.clone() };
        let (task, views) = Task::new(folder.clone(), store, &identity, settings, channels)?;
        tokio::spawn(task.run());
        Ok(Self { commands, events: events.downgrade(), views, folder: Arc::new(folder) })
    }

    /// Submits a change and waits for its outcome, at most until the deadline.
    ///
    /// The device posts the mail when the operation is committed. If the caller drops the future, the device continues
    /// with the operation.
    pub async fn submit(
        &self,
        change: M::Change,
        mail: Option<Mail>,
        deadline: Duration,
    ) -> Result<Outcome, Error> {
        let until = clock::now() + deadline;
        loop {
            let left = until.saturating_duration_since(clock::now());
            let outcome = self.submit_with_id(new_id()?, change.clone(), mail.clone(), left).await?;
            if outcome != Outcome::NotCommitted(NotCommitted::Overtaken) {
                return Ok(outcome);
            }
        }
    }

    /// Submits a change under an id of the caller. However often it is submitted, it is applied at most once.
    ///
    /// If the caller drops the future, the device continues with the operation.
    pub async fn submit_with_id(
        &self,
        id: OperationId,
        change: M::Change,
        mail: Option<Mail>,
        deadline: Duration,
    ) -> Result<Outcome, Error> {
        let until = clock::now() + deadline;
        loop {
            let left = until.saturating_duration_since(clock::now());
            let outcome = self.submitted(id, change.clone(), mail.clone(), left).await?;
            if !matches!(outcome, Outcome::NotCommitted(NotCommitted::AlreadySatisfied) | Outcome::Invalid(_))
            {
                return Ok(outcome);
            }
            let left = until.saturating_duration_since(clock::now());
            if let Some(outcome) = self.confirmed(id, &change, outcome, left).await? {
                return Ok(outcome);
            }
        }
    }

    /// Checks the rejection of an operation against the state at the time of the request. Returns `None` if the
    /// rejection is outdated and the caller may submit the operation again.
    async fn confirmed(
        &self,
        id: OperationId,
        change: &M::Change,
        outcome: Outcome,
        within: Duration,
    ) -> Result<Option<Outcome>, Error> {
        if !self.catch_up(within).await? {
            return Ok(Some(Outcome::NotCommitted(NotCommitted::Deadline)));
        }
        let state = self.state().await?;
        if !state.machine().may_propose(&self.key()) {
            return Ok(Some(outcome));
        }
        Ok(match state.machine().revalidate(change, &state.position()) {
            Revalidation::Satisfied => Some(Outcome::NotCommitted(NotCommitted::AlreadySatisfied)),
            Revalidation::Invalid(invalid) => Some(Outcome::Invalid(invalid)),
            Revalidation::Valid if state.operation_end(&id).is_none() => None,
            Revalidation::Valid => Some(Outcome::NotCommitted(NotCommitted::Overtaken)),
        })
    }

    /// Replaces the device's key by a new one, with the change that `change` builds. The new key is on disk before the
    /// device sends it.
    pub async fn rotate_by(
        &self,
        change: impl FnOnce(PublicKey) -> M::Change,
        deadline: Duration,
    ) -> Result<(PublicKey, Outcome), Error> {
        let folder = self.folder.clone();
        let made = tokio::task::spawn_blocking(move || folder.new_key()).await;
        let made = made.map_err(Error::stopped)??;
        let new = made.public();
        let outcome = self.submitted(new_id()?, change(new), None, deadline).await;
        // If the change was submitted, the task ends it and deletes the unused key.
        if matches!(outcome, Err(Error::Rotating | Error::OperationsPending(_))) {
            self.folder.forget_key(&new);
        }
        Ok((new, outcome?))
    }

    async fn submitted(
        &self,
        id: OperationId,
        change: M::Change,
        mail: Option<Mail>,
        deadline: Duration,
    ) -> Result<Outcome, Error> {
        let until = clock::now() + deadline;
        loop {
            let left = until.saturating_duration_since(clock::now());
            match self.submitted_once(id, change.clone(), mail.clone(), left).await {
                // A signature of a key that is being replaced would not count, so wait for the end of the rotation.
                Err(Error::Rotating) if self.has_rotated(until).await => {}
                ended => return ended,
            }
        }
    }

    async fn has_rotated(&self, until: clock::Instant) -> bool {
        let left = until.saturating_duration_since(clock::now());
        let mut rotating = self.views.rotating.clone();
        matches!(clock::within(left, rotating.wait_for(Option::is_none)).await, Ok(Ok(_)))
    }

    async fn submitted_once(
        &self,
        id: OperationId,
        change: M::Change,
        mail: Option<Mail>,
        deadline: Duration,
    ) -> Result<Outcome, Error> {
        let (reply, outcome) = oneshot::channel();
        let submission = Submission { id, change, mail, deadline, reply };
        let ended = async {
            self.request(Command::Submit(submission)).await?;
            outcome.await.map_err(|_| stopped())?
        };
        clock::within(deadline.saturating_add(GRACE), ended).await.unwrap_or(Ok(Outcome::Unknown))
    }

    /// Subscribes to the decisions from now on. A slow subscriber learns how many events it missed.
    pub fn subscribe(&self) -> Result<EventSubscription, Error> {
        let events = self.events.upgrade().ok_or_else(stopped)?;
        Ok(EventSubscription(events.subscribe()))
    }

    /// Returns the decided state, as far as this device knows it. Cancel-safe.
    pub async fn state(&self) -> Result<Arc<CouncilState<M>>, Error> {
        self.answered(Command::State).await
    }

    /// Returns the status of the device. Cancel-safe.
    pub async fn status(&self) -> Result<DeviceStatus, Error> {
        self.answered(Command::Status).await
    }

    /// Waits until the device has applied every slot that was decided before the call. Returns `false` on a timeout.
    /// Cancel-safe.
    pub async fn catch_up(&self, within: Duration) -> Result<bool, Error> {
        match clock::within(within, self.answered(Command::CatchUp)).await {
            Ok(answer) => answer?.map(|_| true),
            Err(_) => Ok(false),
        }
    }

    /// Waits until no operation is pending and all mail and snapshots are delivered. Returns `false` on a timeout.
    /// Cancel-safe.
    pub async fn settle(&self, within: Duration) -> Result<bool, Error> {
        match clock::within(within, self.answered(Command::Settle)).await {
            Ok(answer) => answer?.map(|()| true),
            Err(_) => Ok(false),
        }
    }

    /// Stops the device. When this function returns, another process may open the device.
    pub async fn close(self) {
        let (reply, stopped) = oneshot::channel();
        if self.request(Command::Stop(reply)).await.is_ok() {
            drop(stopped.await);
        }
    }

    /// Returns the device's key.
    pub fn key(&self) -> PublicKey {
        self.views.key.borrow().public()
    }

    /// Creates an invitation for a new member: the mail of the operation that adds it.
    ///
    /// If the state is too large for a mail message, the acceptors must have a snapshot of it, so the council must have
    /// been compacted before.
    pub async fn invitation(&self, to: PublicKey) -> Result<Mail, Error> {
        // During a rotation the state and the key may not belong together.
        for _ in 0..LOOKS {
            let signing = self.views.key.borrow().clone();
            let state = self.state().await?;
            if state.machine().may_propose(&signing.public()) {
                let mail = Invitation::mail(&state, to, &signing);
                return mail.map_err(|error| DiskError::new(error).into());
            }
        }
        Err(InvalidOperation::because("you are not a member of this council").into())
    }

    async fn answered<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command<M>) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        self.request(command(reply)).await?;
        answer.await.map_err(|_| stopped())
    }

    async fn request(&self, command: Command<M>) -> Result<(), Error> {
        self.commands.send(command).await.map_err(|_| stopped())
    }
}

impl Council<Members> {
    /// Adds a member and posts an invitation for it.
    pub async fn add(
        &self,
        key: PublicKey,
        name: impl Into<String>,
        deadline: Duration,
    ) -> Result<Outcome, Error> {
        let mail = self.invite(key, deadline).await?;
        self.submit(CouncilChange::Add { key, name: name.into() }, Some(mail), deadline).await
    }

    /// Creates an invitation. If the state is too large for a mail message, compacts the council first.
    pub async fn invite(&self, key: PublicKey, deadline: Duration) -> Result<Mail, Error> {
        if Invitation::needs_snapshot(&*self.state().await?) {
            self.compact(deadline).await?;
        }
        self.invitation(key).await
    }

    /// Replaces the device's key by a new one.
    pub async fn rotate(&self, deadline: Duration) -> Result<(PublicKey, Outcome), Error> {
        self.rotate_by(|to| CouncilChange::Rotate { to }, deadline).await
    }

    /// Introduces the council to an acceptor that is to be added, and returns its identity. Fails if the acceptor knows
    /// other members of the council than this device.
    pub async fn introduce_to(&self, address: &PeerAddress, within: Duration) -> Result<AcceptorInfo, Error> {
        let (key, options) = (self.views.key.borrow().clone(), LinkOptions::default());
        let introduced = async {
            let acceptor = identify_acceptor(&key, address, &options).await?;
            let (state, incarnation) = (self.state().await?, self.views.incarnation);
            introduce(&key, incarnation, address, &state, &options).await?;
            Ok(acceptor)
        };
        let late = |_| holdoff_net::Error::Deadline { waited: within, is_sent: false };
        clock::within(within, introduced).await.map_err(late)?
    }

    /// Adds an acceptor, which takes part in decisions from the next slot on.
    pub async fn add_acceptor(
        &self,
        address: &PeerAddress,
        deadline: Duration,
    ) -> Result<(AcceptorInfo, Outcome), Error> {
        let acceptor = self.introduce_to(address, deadline).await?;
        let outcome = self.submit(CouncilChange::AddAcceptor(acceptor.clone()), None, deadline).await?;
        Ok((acceptor, outcome))
    }

    /// Replaces all slots so far by a snapshot.
    pub async fn compact(&self, deadline: Duration) -> Result<Outcome, Error> {
        let since = self.state().await?.applied();
        self.submit(CouncilChange::Compact { since }, None, deadline).await
    }
}

/// Draws the id of a new operation.
pub fn new_id() -> Result<OperationId, Error> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(DiskError::new)?;
    Ok(OperationId(id))
}

fn stopped() -> Error {
    Error::stopped("it was closed, or its disk has failed; see the log")
}

#[cfg(test)]
mod tests;

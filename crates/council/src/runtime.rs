//! Devices as they run: a directory each, links to the acceptors, and one task that owns the core.
//!
//! ```text
//! folder.rs   the directory: the store and the keys     store.rs       what is stored, one transaction a step
//! task.rs     the one task that owns a device           line.rs        the line to one acceptor
//! readers.rs  who wants to know what is decided by now  news.rs        what is told to whoever subscribes
//! founding.rs a new council, and acceptors to meet      joining.rs     becoming a member, by invitation
//! ```
//!
//! # Invariants
//!
//! - Nothing leaves before what it depends on is on disk: the core's [`Held`](holdoff_paxos::Held) sees to it.
//! - Waiting is a timer beside everything else that may happen; the task never sleeps.
//! - An acceptor counts only while its storage has the life it was added with.
//! - One process at a time has a device open.

mod clock;
mod error;
mod folder;
mod founding;
mod invitation;
mod joining;
mod line;
mod measure;
mod news;
mod readers;
mod store;
mod task;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use holdoff_net::LinkOptions;
use tokio::sync::{broadcast, mpsc, oneshot};

pub use error::Error;
pub use founding::{AcceptorAddress, BadAddress, meet};
pub use joining::{Joined, Joining};
pub use line::Health;
pub use news::{News, Subscription};

use crate::machine::{Acceptor, Change, Invalid, Machine, Members, Standing};
use crate::{
    CouncilId, Counts, Decided, Digest, Letter, NodeId, NotCommitted, OperationId, Options, Outcome,
    PublicKey, Slot,
};
use folder::Folder;
use invitation::Invitation;
use store::Store;
use task::{Command, Doors, Submission, Task, Views};

/// How long an operation may take, unless somebody says otherwise.
pub const DEADLINE: Duration = Duration::from_secs(30);
/// As many things may be asked of a device at once; further ones wait for a place.
const ASKED: usize = 256;
/// No subscriber gets a longer queue than this, whatever the settings say.
const MOST_NEWS: usize = 1 << 20;
/// So often it is looked whether the key and the state fit.
const LOOKS: usize = 3;
/// The core ends an operation at its deadline; whoever hears nothing this long after it does not know.
const GRACE: Duration = Duration::from_secs(2);

/// How a device runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How it goes about deciding.
    pub device: Options,
    /// How it is linked to acceptors.
    pub link: LinkOptions,
    /// As many news wait for a subscriber; one that is slower is told how many it has missed. 1024.
    pub news: usize,
    /// What all chance follows from; drawn unless set, for tests.
    pub seed: Option<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { device: Options::default(), link: LinkOptions::default(), news: 1024, seed: None }
    }
}

/// How a device is doing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// Of which council.
    pub council: CouncilId,
    /// By which key it goes.
    pub key: PublicKey,
    /// Who it is in ballots.
    pub node: NodeId,
    /// Whether it is a member, as far as is known here.
    pub is_member: bool,
    /// The last slot that is carried out here.
    pub applied: Slot,
    /// The last slot after which everybody took a snapshot.
    pub compacted: Slot,
    /// What the whole history hashes to.
    pub chain: Digest,
    /// The operations that are under way.
    pub pending: Vec<OperationId>,
    /// How many letters no majority keeps yet.
    pub letters: usize,
    /// How long a question and its answer take.
    pub round_trip: Duration,
    /// Those who decide the next slot.
    pub acceptors: Vec<Watched>,
    /// What it has done since it was started.
    pub counts: Counts,
}

/// An acceptor, and how it stands with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Watched {
    /// Its id.
    pub id: NodeId,
    /// Who it is, and where.
    pub acceptor: Acceptor,
    /// How it stands with it.
    pub health: Health,
}

/// A device of a council, while it runs. Clones are the same device; it stops when the last is dropped.
pub struct Council<M: Machine> {
    commands: mpsc::Sender<Command<M>>,
    news: broadcast::WeakSender<News>,
    views: Views,
    folder: Arc<Folder>,
}

impl<M: Machine> Clone for Council<M> {
    fn clone(&self) -> Self {
        let Self { commands, news, views, folder } = self;
        Self { commands: commands.clone(), news: news.clone(), views: views.clone(), folder: folder.clone() }
    }
}

impl<M: Machine> fmt::Debug for Council<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Council(in {})", self.folder.path().display())
    }
}

impl<M: Machine + Send + Sync + 'static> Council<M>
where
    M::Wish: Send + 'static,
{
    /// Takes up the device in this directory, where it was left.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn open(path: impl AsRef<Path>, settings: Settings) -> Result<Self, Error> {
        let folder = Folder::find(path.as_ref())?;
        let store = Store::open(&folder.store_path())?;
        let about = store.about()?.ok_or_else(|| Error::NotADevice(folder.path().to_owned()))?;
        let (commands, asked) = mpsc::channel(ASKED);
        let (news, _) = broadcast::channel(settings.news.clamp(1, MOST_NEWS));
        let doors = Doors { commands: asked, news: news.clone() };
        let (task, views) = Task::new(folder.clone(), store, &about, settings, doors)?;
        tokio::spawn(task.run());
        Ok(Self { commands, news: news.downgrade(), views, folder: Arc::new(folder) })
    }

    /// Has something decided, and says what became of it, at the latest when the deadline is over.
    ///
    /// A letter is posted when it is committed. What the caller does not wait for to its end goes on by itself.
    pub async fn submit(
        &self,
        wish: M::Wish,
        letter: Option<Letter>,
        deadline: Duration,
    ) -> Result<Outcome, Error> {
        let until = clock::now() + deadline;
        loop {
            let left = until.saturating_duration_since(clock::now());
            let outcome = self.submit_with_id(new_id()?, wish.clone(), letter.clone(), left).await?;
            if outcome != Outcome::NotCommitted(NotCommitted::Overtaken) {
                return Ok(outcome);
            }
        }
    }

    /// The same under an id of the caller's: however often it is submitted, it happens at most once.
    pub async fn submit_with_id(
        &self,
        id: OperationId,
        wish: M::Wish,
        letter: Option<Letter>,
        deadline: Duration,
    ) -> Result<Outcome, Error> {
        let until = clock::now() + deadline;
        loop {
            let left = until.saturating_duration_since(clock::now());
            let outcome = self.submitted(id, wish.clone(), letter.clone(), left).await?;
            if !matches!(outcome, Outcome::NotCommitted(NotCommitted::AlreadySo) | Outcome::Invalid(_)) {
                return Ok(outcome);
            }
            let left = until.saturating_duration_since(clock::now());
            if let Some(outcome) = self.confirmed(id, &wish, outcome, left).await? {
                return Ok(outcome);
            }
        }
    }

    /// Whether what speaks against an operation still does, and was not only what was known here before it was
    /// submitted; `None` if it may be tried again.
    async fn confirmed(
        &self,
        id: OperationId,
        wish: &M::Wish,
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
        Ok(match state.machine().revalidate(wish, &state.around()) {
            Standing::Satisfied => Some(Outcome::NotCommitted(NotCommitted::AlreadySo)),
            Standing::Invalid(invalid) => Some(Outcome::Invalid(invalid)),
            Standing::Wanted if state.fate(&id).is_none() => None,
            Standing::Wanted => Some(Outcome::NotCommitted(NotCommitted::Overtaken)),
        })
    }

    /// Goes over to a new key, which is on disk before anybody hears of it: by the wish that is made of it.
    pub async fn rotate_by(
        &self,
        wish: impl FnOnce(PublicKey) -> M::Wish,
        deadline: Duration,
    ) -> Result<(PublicKey, Outcome), Error> {
        let folder = self.folder.clone();
        let made = tokio::task::spawn_blocking(move || folder.new_key()).await;
        let made = made.map_err(|error| Error::Stopped(error.to_string()))??;
        let new = made.public();
        let outcome = self.submitted(new_id()?, wish(new), None, deadline).await;
        // What was submitted is the task's to end, and its key to forget.
        if matches!(outcome, Err(Error::Rotating | Error::UnderWay(_))) {
            self.folder.forget_key(&new);
        }
        Ok((new, outcome?))
    }

    async fn submitted(
        &self,
        id: OperationId,
        wish: M::Wish,
        letter: Option<Letter>,
        deadline: Duration,
    ) -> Result<Outcome, Error> {
        let until = clock::now() + deadline;
        loop {
            let left = until.saturating_duration_since(clock::now());
            match self.submitted_once(id, wish.clone(), letter.clone(), left).await {
                // What is signed by a key that is about to go would not count: wait until it is known which one stays.
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
        wish: M::Wish,
        letter: Option<Letter>,
        deadline: Duration,
    ) -> Result<Outcome, Error> {
        let (reply, outcome) = oneshot::channel();
        let submission = Submission { id, wish, letter, deadline, reply };
        let ended = async {
            self.ask(Command::Submit(submission)).await?;
            outcome.await.map_err(|_| stopped())?
        };
        clock::within(deadline.saturating_add(GRACE), ended).await.unwrap_or(Ok(Outcome::Unknown))
    }

    /// What is decided from now on. Whoever reads too slowly is told how many were missed.
    pub fn subscribe(&self) -> Result<Subscription, Error> {
        let news = self.news.upgrade().ok_or_else(stopped)?;
        Ok(Subscription(news.subscribe()))
    }

    /// Everything that is decided, as far as it is known here.
    pub async fn state(&self) -> Result<Arc<Decided<M>>, Error> {
        self.answered(Command::State).await
    }

    /// How the device is doing.
    pub async fn status(&self) -> Result<Status, Error> {
        self.answered(Command::Status).await
    }

    /// Waits until everything is carried out here that was decided before this was called; whether it was in time.
    pub async fn catch_up(&self, within: Duration) -> Result<bool, Error> {
        match clock::within(within, self.answered(Command::CatchUp)).await {
            Ok(answer) => answer?.map(|_| true),
            Err(_) => Ok(false),
        }
    }

    /// Waits until nothing is under way, and letters and snapshots are handed in; whether it was in time.
    pub async fn settle(&self, within: Duration) -> Result<bool, Error> {
        match clock::within(within, self.answered(Command::Settle)).await {
            Ok(answer) => answer?.map(|()| true),
            Err(_) => Ok(false),
        }
    }

    /// Stops the device. When this returns another process may open it.
    pub async fn close(self) {
        let (reply, stopped) = oneshot::channel();
        if self.ask(Command::Stop(reply)).await.is_ok() {
            drop(stopped.await);
        }
    }

    /// The key the device goes by.
    pub fn key(&self) -> PublicKey {
        self.views.key.borrow().public()
    }

    /// An invitation for whoever is to be a member: the letter of the operation that adds it.
    ///
    /// Of a state that is too large for a letter the acceptors must have a snapshot: have it compacted at least once.
    pub async fn invitation(&self, to: PublicKey) -> Result<Letter, Error> {
        // A state and the key that belongs to it: while the device goes over to another one, they may not fit.
        for _ in 0..LOOKS {
            let signing = self.views.key.borrow().clone();
            let state = self.state().await?;
            if state.machine().may_propose(&signing.public()) {
                let letter = Invitation::letter(&state, to, &signing);
                return letter.map_err(|error| Error::Disk(error.to_string()));
            }
        }
        Err(Invalid::because("you are not a member of this council").into())
    }

    async fn answered<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command<M>) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        self.ask(command(reply)).await?;
        answer.await.map_err(|_| stopped())
    }

    async fn ask(&self, command: Command<M>) -> Result<(), Error> {
        self.commands.send(command).await.map_err(|_| stopped())
    }
}

impl Council<Members> {
    /// Makes somebody a member, and sends it an invitation.
    pub async fn add(
        &self,
        key: PublicKey,
        name: impl Into<String>,
        deadline: Duration,
    ) -> Result<Outcome, Error> {
        let letter = self.invite(key, deadline).await?;
        self.submit(Change::Add { key, name: name.into() }, Some(letter), deadline).await
    }

    /// An invitation for somebody; a council that is too large for it is compacted first.
    pub async fn invite(&self, key: PublicKey, deadline: Duration) -> Result<Letter, Error> {
        if Invitation::needs_snapshot(&*self.state().await?) {
            self.compact(deadline).await?;
        }
        self.invitation(key).await
    }

    /// Goes over to a new key.
    pub async fn rotate(&self, deadline: Duration) -> Result<(PublicKey, Outcome), Error> {
        self.rotate_by(|to| Change::Rotate { to }, deadline).await
    }

    /// Asks an acceptor who it is, as this device: it need not decide here yet.
    pub async fn meet(&self, address: &AcceptorAddress, within: Duration) -> Result<Acceptor, Error> {
        let (key, options) = (self.views.key.borrow().clone(), LinkOptions::default());
        let late = |_| holdoff_net::Error::Deadline { waited: within, sent: false };
        clock::within(within, meet(&key, address, &options)).await.map_err(late)?
    }

    /// Meets an acceptor, and has it decide from the next slot on.
    pub async fn add_acceptor(
        &self,
        address: &AcceptorAddress,
        deadline: Duration,
    ) -> Result<(Acceptor, Outcome), Error> {
        let acceptor = self.meet(address, deadline).await?;
        let outcome = self.submit(Change::AddAcceptor(acceptor.clone()), None, deadline).await?;
        Ok((acceptor, outcome))
    }

    /// Lets a snapshot stand for everything so far.
    pub async fn compact(&self, deadline: Duration) -> Result<Outcome, Error> {
        let since = self.state().await?.applied();
        self.submit(Change::Compact { since }, None, deadline).await
    }
}

/// A new operation's id.
pub fn new_id() -> Result<OperationId, Error> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|error| Error::Disk(error.to_string()))?;
    Ok(OperationId(id))
}

fn stopped() -> Error {
    Error::Stopped("it was told to, or its disk has failed (the log says which)".to_owned())
}

#[cfg(test)]
mod tests;

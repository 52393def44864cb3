//! One ledger of a process, for whoever uses it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use holdoff_net::PublicKey;
use holdoff_paxos::Slot;
use holdoff_paxos::log::Payload;
use tokio::sync::{mpsc, oneshot, watch};

use super::book::Book;
use super::identity::LedgerId;
use super::lines::Lines;
use super::roster::{Member, Wish};
use super::status::{Glance, Status};
use super::task::{Answered, Event, History, Led, NotLed};
use super::waiting::Waiting;
use super::wire::{Reply, Request, Wanted};
use super::{AnswerOf, Error, Estate, GoalOf, Housed, clock};
use crate::entry::{Entry, Logged, TxId};
use crate::ledger::{How, Outcome, Verified};
use crate::machine::{Either, Failed};

/// The core ends a transaction when its time is over; whoever hears nothing this long after that does not know.
const GRACE: Duration = Duration::from_secs(2);
/// So many entries are asked for at a time.
const PAGE: usize = 256;

/// A node of one ledger, while it runs. Clones are the same node.
pub struct Node<M: Housed> {
    pub(super) events: mpsc::Sender<Event<M>>,
    pub(super) glance: watch::Receiver<Glance>,
    pub(super) shared: Arc<Shared>,
}

/// What stays the same while a node runs.
pub(super) struct Shared {
    pub(super) ledger: LedgerId,
    pub(super) namespace: String,
    pub(super) key: PublicKey,
    pub(super) book: Arc<Book>,
    pub(super) lines: Arc<Lines>,
    pub(super) patience: Duration,
    /// Why it has stopped, once it has.
    pub(super) ended: watch::Receiver<Option<Error>>,
}

/// An entry of the history, and its place.
#[derive(Clone, PartialEq, Debug)]
pub struct Page<M: Housed> {
    /// Its place.
    pub index: Slot,
    /// What stands there.
    pub entry: Logged<Estate<M>>,
}

impl<M: Housed> Page<M> {
    /// What it changed; nothing if it changed something else than what the ledger is for.
    pub fn diff(&self) -> Option<&M::Diff> {
        match &self.entry.payload {
            Payload::Value(Entry { diff: Either::Second(diff), .. }) => Some(diff),
            _ => None,
        }
    }
}

impl<M: Housed> Clone for Node<M> {
    fn clone(&self) -> Self {
        Self { events: self.events.clone(), glance: self.glance.clone(), shared: self.shared.clone() }
    }
}

impl<M: Housed> fmt::Debug for Node<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({} of ledger `{}`)", self.shared.key, self.shared.namespace)
    }
}

impl<M: Housed> Node<M> {
    /// A name for a transaction that nobody has used.
    pub fn new_tx_id() -> Result<TxId, Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| Error::NotNow(error.to_string()))?;
        Ok(TxId(u128::from_be_bytes(bytes)))
    }

    /// What the ledger is called.
    pub fn namespace(&self) -> &str {
        &self.shared.namespace
    }

    /// Which ledger it is.
    pub fn ledger(&self) -> LedgerId {
        self.shared.ledger
    }

    /// By which key this node goes.
    pub fn key(&self) -> PublicKey {
        self.shared.key
    }

    /// Has something done, wherever the leader is, and says what came of it.
    ///
    /// The same name again is the same transaction: it happens once at most. What the caller does not wait for to its end
    /// goes on by itself.
    pub async fn submit(
        &self,
        tx_id: TxId,
        goal: M::Goal,
        within: Duration,
    ) -> Result<Outcome<M::Answer>, Error> {
        let outcome = self.submit_any(tx_id, Either::Second(goal), within).await?;
        Ok(outcome.map(|answer| match answer {
            Either::Second(answer) => Some(answer),
            Either::First(()) => None,
        }))
    }

    /// Makes somebody a member, or changes what is said of one.
    pub async fn admit(
        &self,
        key: PublicKey,
        member: Member,
        within: Duration,
    ) -> Result<Outcome<()>, Error> {
        self.change_members(Wish::Admit(key, member), within).await
    }

    /// Makes somebody a member no longer.
    pub async fn dismiss(&self, key: PublicKey, within: Duration) -> Result<Outcome<()>, Error> {
        self.change_members(Wish::Dismiss(key), within).await
    }

    async fn change_members(&self, wish: Wish, within: Duration) -> Result<Outcome<()>, Error> {
        let outcome = self.submit_any(Self::new_tx_id()?, Either::First(wish), within).await?;
        Ok(outcome.map(|_| Some(())))
    }

    async fn submit_any(
        &self,
        tx_id: TxId,
        goal: GoalOf<M>,
        within: Duration,
    ) -> Result<Outcome<AnswerOf<M>>, Error> {
        let ended = self.answered(|reply| Event::Submit { tx_id, goal, reply });
        match clock::within(within.saturating_add(GRACE), ended).await {
            Ok(outcome) => outcome,
            Err(_) => Ok(Outcome::Unknown),
        }
    }

    /// Looks something up: here, or where the leader is. What the goal would change is not changed.
    ///
    /// Returns the answer, and the last entry that it knows of.
    pub async fn read(
        &self,
        goal: M::Goal,
        how: How,
        within: Duration,
    ) -> Result<(Slot, Result<M::Answer, Failed>), Error> {
        let reading = async {
            let mut looking = looking();
            loop {
                match self.read_here(goal.clone(), how).await? {
                    Ok(answer) => return Ok(answer),
                    Err(Some(leader)) => {
                        if let Some(answer) = self.read_there(&leader, &goal, how).await {
                            return Ok(answer);
                        }
                    }
                    Err(None) => {}
                }
                looking.wait().await;
            }
        };
        clock::within(within, reading).await.unwrap_or(Err(Error::NoLeader(within)))
    }

    /// Looks something up here, if this node may answer.
    pub(super) async fn read_here(&self, goal: M::Goal, how: How) -> Result<Answered<M>, Error> {
        self.answered(|reply| Event::Read { goal, how, reply }).await
    }

    async fn read_there(
        &self,
        leader: &PublicKey,
        goal: &M::Goal,
        how: How,
    ) -> Option<(Slot, Result<M::Answer, Failed>)> {
        let goal = holdoff_net::encode(goal).ok()?;
        let request = Request::Read { ledger: self.shared.ledger, goal, how };
        match self.ask(leader, &request).await? {
            Reply::Read(index, answer) => Some((index, holdoff_net::decode(&answer).ok()?)),
            _ => None,
        }
    }

    /// Lets another voter lead: this one, or whoever has come furthest. Returns to whom it was left; whether that one comes
    /// to lead, the voters decide.
    pub async fn hand_over(&self, to: Option<PublicKey>) -> Result<PublicKey, Error> {
        let wanted = Wanted::HandOver(to);
        let doing = async {
            let mut looking = looking();
            loop {
                match self.led(wanted).await? {
                    Ok(who) => return Ok(who),
                    Err(NotLed::Because(why)) => return Err(Error::NotNow(why)),
                    Err(NotLed::Elsewhere(Some(leader))) => {
                        let request = Request::Lead { ledger: self.shared.ledger, wanted };
                        match self.ask(&leader, &request).await {
                            Some(Reply::Done(who)) => return Ok(who),
                            Some(Reply::NotDone(why)) => return Err(Error::NotNow(why)),
                            _ => {}
                        }
                    }
                    Err(NotLed::Elsewhere(None)) => {}
                }
                looking.wait().await;
            }
        };
        let patience = self.shared.patience;
        clock::within(patience, doing).await.unwrap_or(Err(Error::NoLeader(patience)))
    }

    pub(super) async fn led(&self, wanted: Wanted) -> Result<Led, Error> {
        self.answered(|reply| Event::Lead { wanted, reply }).await
    }

    async fn ask(&self, whom: &PublicKey, request: &Request) -> Option<Reply> {
        let address = self.shared.book.member(whom)?.address;
        let link = self.shared.lines.link(whom, &address).ok()?;
        let reply = link.ask_within(self.shared.patience, request).await;
        reply.inspect_err(|error| tracing::debug!(%error, "the leader was not reached")).ok()
    }

    /// How the node is doing.
    pub async fn status(&self) -> Result<Status, Error> {
        self.answered(Event::Status).await
    }

    /// The least that is worth watching, as it is now and whenever it changes.
    pub fn glance(&self) -> watch::Receiver<Glance> {
        self.glance.clone()
    }

    /// Entries after a place, so many at most.
    ///
    /// Older ones than a node keeps are gone: then the error says where those begin that are there.
    pub async fn history(&self, after: Slot, limit: usize) -> Result<Result<Vec<Page<M>>, Slot>, Error> {
        self.history_here(after, limit).await
    }

    async fn history_here(&self, after: Slot, limit: usize) -> Result<History<M>, Error> {
        self.answered(|reply| Event::History { after, limit, reply }).await
    }

    /// All entries after a place, as they are applied here.
    pub fn subscribe(&self, after: Slot) -> Subscription<M> {
        Subscription { node: self.clone(), after, pages: Vec::new().into_iter() }
    }

    /// Goes over the history that this node keeps.
    pub async fn verify(&self) -> Result<Verified, Error> {
        self.answered(Event::Verify).await
    }

    /// Puts a snapshot in the place of all entries so far on this node's disk, once a majority has signed where they have
    /// led to. Returns, once it is there, up to where it reaches.
    pub async fn compact(&self) -> Result<Slot, Error> {
        let wanted = self.glance.borrow().head.index;
        let compacting = async {
            let mut looking = looking();
            loop {
                let through = self.answered(Event::Compact).await?;
                if through >= wanted {
                    return Ok(through);
                }
                looking.wait().await;
            }
        };
        let patience = self.shared.patience;
        clock::within(patience, compacting).await.unwrap_or(Err(Error::NoLeader(patience)))
    }

    /// Waits until it has stopped, and says why.
    pub async fn stopped(&self) -> Error {
        let mut ended = self.shared.ended.clone();
        let why = ended.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
        why.unwrap_or_else(|| Error::Stopped("its process ends".to_owned()))
    }

    async fn answered<T>(&self, event: impl FnOnce(oneshot::Sender<T>) -> Event<M>) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        self.events.send(event(reply)).await.map_err(|_| self.why())?;
        answer.await.map_err(|_| self.why())
    }

    fn why(&self) -> Error {
        let why = self.shared.ended.borrow().clone();
        why.unwrap_or_else(|| Error::Stopped("its process ends".to_owned()))
    }
}

impl<A> Outcome<A> {
    /// The same for another form of the answer; what has none is unknown.
    fn map<B>(self, answer: impl FnOnce(A) -> Option<B>) -> Outcome<B> {
        match self {
            Self::Committed { index, result } => match answer(result) {
                Some(result) => Outcome::Committed { index, result },
                None => Outcome::Unknown,
            },
            Self::Failed { index, why } => Outcome::Failed { index, why },
            Self::NoQuorum => Outcome::NoQuorum,
            Self::Unknown => Outcome::Unknown,
            Self::TooMany => Outcome::TooMany,
        }
    }
}

/// Entries as they are applied.
#[derive(Debug)]
pub struct Subscription<M: Housed> {
    node: Node<M>,
    after: Slot,
    pages: std::vec::IntoIter<Page<M>>,
}

impl<M: Housed> Subscription<M> {
    /// The next entry, when it is there.
    ///
    /// `Ok(Err(slot))` says that those before this slot are not kept any more: they are missed, and it goes on from there.
    pub async fn next(&mut self) -> Result<Result<Page<M>, Slot>, Error> {
        loop {
            if let Some(page) = self.pages.next() {
                self.after = page.index;
                return Ok(Ok(page));
            }
            let after = self.after;
            let mut glance = self.node.glance();
            let news = glance.wait_for(|glance| glance.head.index > after).await;
            drop(news.map_err(|_| self.node.why())?);
            match self.node.history_here(after, PAGE).await? {
                Ok(pages) => self.pages = pages.into_iter(),
                Err(first) => {
                    self.after = Slot(first.0.saturating_sub(1));
                    return Ok(Err(first));
                }
            }
        }
    }
}

/// How to look for a leader.
fn looking() -> Waiting {
    Waiting::between(Duration::from_millis(10), Duration::from_millis(300))
}

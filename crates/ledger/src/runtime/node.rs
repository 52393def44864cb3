//! The handle of a node, through which callers use a ledger.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use holdoff_net::{NoRandomness, PublicKey, QueueSender};
use holdoff_paxos::Slot;
use holdoff_paxos::log::EntryPayload;
use holdoff_policy::Jitter;
use holdoff_retry::Backoff;
use tokio::sync::{mpsc, oneshot, watch};

use super::address_book::AddressBook;
use super::identity::LedgerId;
use super::peers::Peers;
use super::roster::{LedgerMember, MembershipChange};
use super::status::{LedgerStatus, NodeStatus};
use super::task::{Event, HistoryReply, LeaderError, LeaderReply, ReadReply, ReceivedEnvelope};
use super::wire::{LeaderCommand, Reply, Request};
use super::{AnswerOf, Error, GoalOf, NodeMachine, NodeState, clock};
use crate::entry::{LogEntry, Transaction, TxId, TxKey};
use crate::ledger::{Consistency, Outcome, Verification};
use crate::machine::{Either, GoalError};

/// The time after its deadline within which the task answers a submission. It is exceeded only if the disk hangs, and the task
/// accepts no further events.
const GRACE: Duration = Duration::from_secs(2);

/// The number of entries that a subscription requests at a time.
const BATCH: usize = 256;

/// The handle of a node of one ledger. Clones refer to the same node.
pub struct Node<M: NodeMachine> {
    pub(super) events: mpsc::Sender<Event<M>>,
    pub(super) status: watch::Receiver<NodeStatus>,
    pub(super) shared: Arc<NodeShared>,
}

/// The parts of a node that do not change while it runs.
pub(super) struct NodeShared {
    pub(super) ledger: LedgerId,
    pub(super) namespace: String,
    pub(super) key: PublicKey,
    pub(super) address_book: Arc<AddressBook>,
    /// The queue of the envelopes of peers.
    pub(super) inbox: QueueSender<ReceivedEnvelope>,
    pub(super) peers: Arc<Peers>,
    pub(super) max_transaction_bytes: usize,
    pub(super) call_timeout: Duration,
    /// The reason why the node has stopped, if it has.
    pub(super) ended: watch::Receiver<Option<Error>>,
}

/// An entry of the history, with its index.
#[derive(Clone, PartialEq, Debug)]
pub struct HistoryEntry<M: NodeMachine> {
    /// The index of the entry.
    pub index: Slot,
    /// The entry.
    pub entry: LogEntry<NodeState<M>>,
}

impl<M: NodeMachine> HistoryEntry<M> {
    /// Returns the changes of the callers' machine, or `None` if the entry changes the roster or the configuration.
    pub fn diff(&self) -> Option<&M::Diff> {
        match &self.entry.payload {
            EntryPayload::Value(Transaction { diff: Either::Second(diff), .. }) => Some(diff),
            _ => None,
        }
    }
}

impl<M: NodeMachine> Clone for Node<M> {
    fn clone(&self) -> Self {
        Self { events: self.events.clone(), status: self.status.clone(), shared: self.shared.clone() }
    }
}

impl<M: NodeMachine> fmt::Debug for Node<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({} of ledger `{}`)", self.shared.key, self.shared.namespace)
    }
}

impl<M: NodeMachine> Node<M> {
    /// Returns the key of a new transaction: a random id, and the last index that this node has applied.
    pub fn new_tx(&self) -> Result<TxKey, Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(NoRandomness::from)?;
        Ok(TxKey { id: TxId(u128::from_be_bytes(bytes)), birth: self.index() })
    }

    /// Returns the last index that this node has applied.
    pub fn index(&self) -> Slot {
        self.status.borrow().head.index
    }

    /// Returns the name of the ledger.
    pub fn namespace(&self) -> &str {
        &self.shared.namespace
    }

    /// Returns the id of the ledger.
    pub fn ledger(&self) -> LedgerId {
        self.shared.ledger
    }

    /// Returns the public key of this node.
    pub fn key(&self) -> PublicKey {
        self.shared.key
    }

    /// Submits a transaction and waits for its outcome. The node forwards it to the leader.
    ///
    /// A repeated id is the same transaction, which commits at most once, whatever time has passed. Cancel-safe: a cancelled
    /// call does not cancel the transaction, and a call with the same key waits for the same outcome.
    pub async fn submit(
        &self,
        tx: TxKey,
        goal: M::Goal,
        within: Duration,
    ) -> Result<Outcome<M::Answer>, Error> {
        let size = postcard::serialize_with_flavor(&goal, postcard::ser_flavors::Size::default());
        let (bytes, most) = (size.unwrap_or(usize::MAX), self.shared.max_transaction_bytes);
        if bytes > most {
            return Err(Error::TooLarge { bytes, most });
        }
        let outcome = self.submit_any(tx, Either::Second(goal), within).await?;
        Ok(outcome.map(|answer| match answer {
            Either::Second(answer) => Some(answer),
            Either::First(()) => None,
        }))
    }

    /// Submits a transaction, and submits it again under the same key while its outcome is unknown. Never returns
    /// [`Outcome::Unknown`].
    ///
    /// `NoQuorum` and `TooMany` describe the last submission: after an earlier one whose outcome was unknown, the
    /// transaction may still commit. After `Overtaken` and `Expired` no submission with this key takes effect. `timeout`
    /// limits each submission, not the call. After a cancellation the outcome is unknown: call this again with the same
    /// key to resolve it.
    pub async fn submit_until_known(
        &self,
        tx: TxKey,
        goal: M::Goal,
        timeout: Duration,
    ) -> Result<Outcome<M::Answer>, Error> {
        let mut backoff = leader_backoff();
        loop {
            match self.submit(tx, goal.clone(), timeout).await? {
                Outcome::Unknown { .. } => backoff.wait().await,
                outcome => return Ok(outcome),
            }
        }
    }

    /// Adds a member, or changes the name, address and role of a member. After a cancellation the outcome is unknown.
    pub async fn add_member(
        &self,
        key: PublicKey,
        member: LedgerMember,
        within: Duration,
    ) -> Result<Outcome<()>, Error> {
        self.change_members(MembershipChange::Add(key, member), within).await
    }

    /// Removes a member. After a cancellation the outcome is unknown.
    pub async fn remove_member(&self, key: PublicKey, within: Duration) -> Result<Outcome<()>, Error> {
        self.change_members(MembershipChange::Remove(key), within).await
    }

    async fn change_members(&self, change: MembershipChange, within: Duration) -> Result<Outcome<()>, Error> {
        let outcome = self.submit_any(self.new_tx()?, Either::First(change), within).await?;
        Ok(outcome.map(|_| Some(())))
    }

    async fn submit_any(
        &self,
        tx: TxKey,
        goal: GoalOf<M>,
        within: Duration,
    ) -> Result<Outcome<AnswerOf<M>>, Error> {
        let (reply, outcome) = oneshot::channel();
        let deadline_us = clock::now_us().saturating_add(holdoff_policy::as_micros_u64(within));
        let event = Event::Submit { tx, goal, deadline_us, reply };
        match clock::within(within, self.events.send(event)).await {
            Ok(sent) => sent.map_err(|_| self.stop_reason())?,
            // The node has not received the submission.
            Err(_) => return Ok(Outcome::TooMany),
        }
        match clock::within(within.saturating_add(GRACE), outcome).await {
            Ok(outcome) => outcome.map_err(|_| self.stop_reason()),
            Err(_) => Ok(Outcome::Unknown { absent_through: tx.birth }),
        }
    }

    /// Executes a goal and discards its changes: at this node, or at the leader if the consistency requires it.
    ///
    /// Returns the answer, and the index of the last entry that it includes. Cancel-safe.
    pub async fn read(
        &self,
        goal: M::Goal,
        consistency: Consistency,
        within: Duration,
    ) -> Result<(Slot, Result<M::Answer, GoalError>), Error> {
        let reading = async {
            let mut backoff = leader_backoff();
            loop {
                match self.read_here(goal.clone(), consistency).await? {
                    Ok(answer) => return Ok(answer),
                    Err(Some(leader)) => {
                        if let Some(answer) = self.read_at_leader(&leader, &goal, consistency).await {
                            return Ok(answer);
                        }
                    }
                    Err(None) => {}
                }
                backoff.wait().await;
            }
        };
        clock::within(within, reading).await.unwrap_or(Err(Error::NoLeader(within)))
    }

    /// Reads at this node. Returns the known leader if this node may not answer.
    pub(super) async fn read_here(
        &self,
        goal: M::Goal,
        consistency: Consistency,
    ) -> Result<ReadReply<M>, Error> {
        self.request(|reply| Event::Read { goal, consistency, reply }).await
    }

    async fn read_at_leader(
        &self,
        leader: &PublicKey,
        goal: &M::Goal,
        consistency: Consistency,
    ) -> Option<(Slot, Result<M::Answer, GoalError>)> {
        let goal = holdoff_net::encode(goal).ok()?;
        let request = Request::Read { ledger: self.shared.ledger, goal, consistency };
        match self.call(leader, &request).await? {
            Reply::Read(index, answer) => Some((index, holdoff_net::decode(&answer).ok()?)),
            _ => None,
        }
    }

    /// Transfers leadership to this voter, or to the voter with the highest applied index. Returns the target; the voters
    /// decide whether it becomes the leader. After a cancellation the transfer may still happen.
    pub async fn transfer_leadership(&self, to: Option<PublicKey>) -> Result<PublicKey, Error> {
        let command = LeaderCommand::TransferLeadership(to);
        let doing = async {
            let mut backoff = leader_backoff();
            loop {
                match self.execute_as_leader(command).await? {
                    Ok(target) => return Ok(target),
                    Err(LeaderError::Rejected(why)) => return Err(why.into()),
                    Err(LeaderError::NotLeader(Some(leader))) => {
                        let request = Request::LeaderCommand { ledger: self.shared.ledger, command };
                        match self.call(&leader, &request).await {
                            Some(Reply::Done(target)) => return Ok(target),
                            Some(Reply::NotTransferred(why)) => return Err(why.into()),
                            _ => {}
                        }
                    }
                    Err(LeaderError::NotLeader(None)) => {}
                }
                backoff.wait().await;
            }
        };
        let call_timeout = self.shared.call_timeout;
        clock::within(call_timeout, doing).await.unwrap_or(Err(Error::NoLeader(call_timeout)))
    }

    pub(super) async fn execute_as_leader(&self, command: LeaderCommand) -> Result<LeaderReply, Error> {
        self.request(|reply| Event::LeaderCommand { command, reply }).await
    }

    async fn call(&self, peer: &PublicKey, request: &Request) -> Option<Reply> {
        let address = self.shared.address_book.member(peer)?.address;
        let link = self.shared.peers.link(peer, &address).ok()?;
        let reply = link.call_value_within(self.shared.call_timeout, request).await;
        reply.inspect_err(|error| tracing::debug!(%error, "failed to reach the leader")).ok()
    }

    /// Returns the detailed status of the node. Cancel-safe.
    pub async fn status(&self) -> Result<LedgerStatus, Error> {
        self.request(Event::Status).await
    }

    /// Returns a receiver of the node's status: the current value, and every change.
    pub fn watch_status(&self) -> watch::Receiver<NodeStatus> {
        self.status.clone()
    }

    /// Returns at most `limit` entries after an index. Cancel-safe.
    ///
    /// If the node no longer keeps these entries, the inner error is the index of the oldest entry that it keeps.
    pub async fn history(
        &self,
        after: Slot,
        limit: usize,
    ) -> Result<Result<Vec<HistoryEntry<M>>, Slot>, Error> {
        self.history_here(after, limit).await
    }

    async fn history_here(&self, after: Slot, limit: usize) -> Result<HistoryReply<M>, Error> {
        self.request(|reply| Event::History { after, limit, reply }).await
    }

    /// Returns the entries after an index, as this node applies them.
    pub fn subscribe(&self, after: Slot) -> HistorySubscription<M> {
        HistorySubscription { node: self.clone(), after, entries: Vec::new().into_iter() }
    }

    /// Verifies the history that this node keeps. Cancel-safe.
    pub async fn verify(&self) -> Result<Verification, Error> {
        self.request(Event::Verify).await
    }

    /// Replaces all current entries on this node's disk with a snapshot, after a majority has signed their head. Returns
    /// the last index of the snapshot when it is on disk. After a cancellation the snapshot may still be taken.
    pub async fn compact(&self) -> Result<Slot, Error> {
        let wanted = self.status.borrow().head.index;
        let compacting = async {
            let mut backoff = leader_backoff();
            loop {
                let through = self.request(Event::Compact).await?;
                if through >= wanted {
                    return Ok(through);
                }
                backoff.wait().await;
            }
        };
        let call_timeout = self.shared.call_timeout;
        clock::within(call_timeout, compacting).await.unwrap_or(Err(Error::NoLeader(call_timeout)))
    }

    /// Waits until the node has stopped, and returns the reason. Cancel-safe.
    pub async fn stopped(&self) -> Error {
        let mut ended = self.shared.ended.clone();
        let why = ended.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
        why.unwrap_or(Error::Stopped)
    }

    async fn request<T>(&self, event: impl FnOnce(oneshot::Sender<T>) -> Event<M>) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        self.events.send(event(reply)).await.map_err(|_| self.stop_reason())?;
        answer.await.map_err(|_| self.stop_reason())
    }

    fn stop_reason(&self) -> Error {
        let why = self.shared.ended.borrow().clone();
        why.unwrap_or(Error::Stopped)
    }
}

impl<A> Outcome<A> {
    /// Converts the answer. An answer that cannot be converted makes the outcome unknown.
    fn map<B>(self, answer: impl FnOnce(A) -> Option<B>) -> Outcome<B> {
        match self {
            Self::Committed { index, result } => match answer(result) {
                Some(result) => Outcome::Committed { index, result },
                None => Outcome::Unknown { absent_through: Slot(index.0.saturating_sub(1)) },
            },
            Self::Failed { index, why } => Outcome::Failed { index, why },
            Self::NoQuorum => Outcome::NoQuorum,
            Self::Unknown { absent_through } => Outcome::Unknown { absent_through },
            Self::Overtaken { absent_through } => Outcome::Overtaken { absent_through },
            Self::Expired { through } => Outcome::Expired { through },
            Self::TooMany => Outcome::TooMany,
        }
    }
}

/// The entries of a ledger, as a node applies them.
#[derive(Debug)]
pub struct HistorySubscription<M: NodeMachine> {
    node: Node<M>,
    after: Slot,
    entries: std::vec::IntoIter<HistoryEntry<M>>,
}

impl<M: NodeMachine> HistorySubscription<M> {
    /// Waits for the next entry. Cancel-safe.
    ///
    /// `Ok(Err(index))` means that the node no longer keeps the entries before this index. The subscription has missed
    /// them, and continues from there.
    pub async fn next(&mut self) -> Result<Result<HistoryEntry<M>, Slot>, Error> {
        loop {
            if let Some(entry) = self.entries.next() {
                self.after = entry.index;
                return Ok(Ok(entry));
            }
            let after = self.after;
            let mut status = self.node.watch_status();
            let news = status.wait_for(|status| status.head.index > after).await;
            drop(news.map_err(|_| self.node.stop_reason())?);
            match self.node.history_here(after, BATCH).await? {
                Ok(entries) => self.entries = entries.into_iter(),
                Err(first) => {
                    self.after = Slot(first.0.saturating_sub(1));
                    return Ok(Err(first));
                }
            }
        }
    }
}

/// Returns the backoff of the search for a leader.
fn leader_backoff() -> Backoff {
    Backoff::exponential(Duration::from_millis(10), Duration::from_millis(300), Jitter::Equal)
}

//! The link to one acceptor: sends requests, and receives replies and pushes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use holdoff_net::{Link, LinkOptions, PeerAddress, PushEvent, PushReceiver, SecretKey};
use holdoff_paxos::{NodeId, Slot};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::{Error, clock};
use crate::acceptor::{LinkPush, LinkReply, LinkRequest, ROLE};
use crate::machine::AcceptorInfo;
use crate::{AcceptorReply, AcceptorRequest, CouncilId, RequestRefusal};

/// The maximum numbers of requests that wait for a connection, and of requests in flight.
const QUEUED: usize = 256;
const UNDER_WAY: usize = 128;
/// The timeout of a request. The device repeats a request that still matters.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The interval at which the link retries a failed connection.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(100);

/// The health of the link to an acceptor.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AcceptorHealth {
    /// The link is not connected yet.
    Connecting,
    /// The acceptor answers.
    Connected,
    /// The acceptor does not answer, for this reason.
    Unreachable(String),
    /// The acceptor has lost its store and with it its promises. The device does not count it.
    Wiped {
        /// The current incarnation of its store.
        incarnation: u64,
    },
    /// The acceptor refuses requests.
    Refusing(RequestRefusal),
}

/// A reply or a push of an acceptor.
pub(super) struct ReceivedReply {
    pub(super) from: NodeId,
    pub(super) reply: AcceptorReply,
    /// The tag of the answered request. 0 if the request had none.
    pub(super) tag: u64,
}

/// The data that all links of a device share.
#[derive(Clone)]
pub(super) struct LinkContext {
    pub(super) key: SecretKey,
    pub(super) incarnation: u64,
    pub(super) council: CouncilId,
    pub(super) options: LinkOptions,
    pub(super) inbox: mpsc::Sender<ReceivedReply>,
    /// The last slot that the device has applied.
    pub(super) applied: Arc<AtomicU64>,
}

/// A handle to the link to one acceptor. After it is dropped, the queued requests are still sent if the link is
/// connected.
pub(super) struct AcceptorLink {
    to: AcceptorInfo,
    requests: mpsc::Sender<(AcceptorRequest, u64)>,
    health: Arc<Mutex<AcceptorHealth>>,
}

impl AcceptorLink {
    pub(super) fn open(context: &LinkContext, acceptor: &AcceptorInfo) -> Result<Self, Error> {
        let (link, pushes) = link(&context.key, acceptor.key, &acceptor.address, &context.options)?;
        let (requests, queue) = mpsc::channel(QUEUED);
        let health = Arc::new(Mutex::new(AcceptorHealth::Connecting));
        let task = LinkTask {
            context: context.clone(),
            acceptor: acceptor.id(),
            incarnation: acceptor.incarnation,
            link,
            pushes,
            queue,
            health: health.clone(),
        };
        tokio::spawn(task.run());
        Ok(Self { to: acceptor.clone(), requests, health })
    }

    /// Returns whether the link leads to this acceptor at its current address.
    pub(super) fn leads_to(&self, acceptor: &AcceptorInfo) -> bool {
        self.to == *acceptor
    }

    /// Queues a request, or drops it if the queue is full. The device repeats requests that matter.
    pub(super) fn request(&self, request: AcceptorRequest, tag: u64) {
        drop(self.requests.try_send((request, tag)));
    }

    pub(super) fn health(&self) -> AcceptorHealth {
        self.health.lock().clone()
    }
}

/// Creates a link to an acceptor.
pub(super) fn link(
    key: &SecretKey,
    acceptor: crate::PublicKey,
    address: &str,
    options: &LinkOptions,
) -> Result<(Link, PushReceiver), Error> {
    let remote = PeerAddress { key: acceptor, address: address.to_owned() };
    let options = LinkOptions { role: ROLE, ..options.clone() };
    Ok(Link::new(key, remote, options)?)
}

/// Asks for the incarnation of the acceptor's store.
pub(super) async fn identify(link: &Link) -> Result<u64, holdoff_net::Error> {
    let reply: LinkReply = link.call_value_within(REQUEST_TIMEOUT, &LinkRequest::Identify).await?;
    Ok(reply.incarnation)
}

/// The state of the link's task.
struct LinkTask {
    context: LinkContext,
    acceptor: NodeId,
    incarnation: u64,
    link: Link,
    pushes: PushReceiver,
    queue: mpsc::Receiver<(AcceptorRequest, u64)>,
    health: Arc<Mutex<AcceptorHealth>>,
}

impl LinkTask {
    async fn run(mut self) {
        loop {
            let is_on = match self.connect().await {
                Some(incarnation) if incarnation == self.incarnation => self.serve().await,
                Some(incarnation) => {
                    self.set(AcceptorHealth::Wiped { incarnation });
                    let id = self.acceptor;
                    tracing::warn!(acceptor = %id, "detected a wiped acceptor: remove it and add it again");
                    self.refuse().await
                }
                None => return,
            };
            if !is_on {
                return;
            }
        }
    }

    /// Connects, and returns the incarnation of the acceptor's store. Returns `None` if the link was dropped.
    async fn connect(&mut self) -> Option<u64> {
        loop {
            let tried = match self.link.connect().await {
                Ok(()) => {
                    // Later events belong to a later connection, behind which may be another store.
                    while self.pushes.try_next().is_some() {}
                    identify(&self.link).await
                }
                Err(error) => Err(error),
            };
            match tried {
                Ok(incarnation) => return Some(incarnation),
                Err(error) => self.set(AcceptorHealth::Unreachable(error.to_string())),
            }
            // Drop the requests that arrived meanwhile: they are outdated when the link connects.
            loop {
                match self.queue.try_recv() {
                    Ok(_) => {}
                    Err(mpsc::error::TryRecvError::Empty) => break,
                    Err(mpsc::error::TryRecvError::Disconnected) => return None,
                }
            }
            clock::sleep(RECONNECT_INTERVAL).await;
        }
    }

    /// Sends requests and receives replies until the connection ends. Returns whether the link is still in use.
    async fn serve(&mut self) -> bool {
        self.set(AcceptorHealth::Connected);
        let (link, council, expected) = (self.link.clone(), self.context.council, self.incarnation);
        let incarnation = self.context.incarnation;
        let mut under_way = FuturesUnordered::new();
        let call = |request: AcceptorRequest, tag: u64| {
            let link = link.clone();
            async move {
                let reply = link
                    .call_value_within::<LinkReply>(
                        REQUEST_TIMEOUT,
                        &LinkRequest::Council { incarnation, council, request },
                    )
                    .await;
                (reply, tag)
            }
        };
        let after = Slot(self.context.applied.load(Ordering::Relaxed));
        under_way.push(call(AcceptorRequest::Fetch { after }, 0));
        let mut is_wanted = true;
        loop {
            tokio::select! {
                heard = self.pushes.next() => match heard {
                    Some(PushEvent::Push(bytes)) => self.handle_push(&bytes).await,
                    Some(PushEvent::Missed(_)) => {
                        let after = Slot(self.context.applied.load(Ordering::Relaxed));
                        under_way.push(call(AcceptorRequest::Fetch { after }, 0));
                    }
                    Some(_) => return is_wanted,
                    None => return false,
                },
                queued = self.queue.recv(), if is_wanted && under_way.len() < UNDER_WAY => match queued {
                    Some((request, tag)) => under_way.push(call(request, tag)),
                    None => is_wanted = false,
                },
                Some((reply, tag)) = under_way.next() => match reply {
                    Ok(LinkReply { incarnation, replies }) if incarnation == expected => {
                        for reply in replies {
                            self.handle_reply(reply, tag).await;
                        }
                    }
                    Ok(LinkReply { incarnation, .. }) => {
                        self.set(AcceptorHealth::Wiped { incarnation });
                        return is_wanted;
                    }
                    Err(error) => {
                        self.set(AcceptorHealth::Unreachable(error.to_string()));
                        if !matches!(error, holdoff_net::Error::Deadline { .. }) && self.link_is_down() {
                            return is_wanted;
                        }
                    }
                },
            }
            if !is_wanted && under_way.is_empty() {
                return false;
            }
        }
    }

    fn link_is_down(&self) -> bool {
        !matches!(self.link.status(), holdoff_net::LinkStatus::Connected)
    }

    /// Drops all requests to an acceptor that has lost its promises, until there is another connection.
    async fn refuse(&mut self) -> bool {
        loop {
            tokio::select! {
                heard = self.pushes.next() => match heard {
                    Some(PushEvent::Connected) => return true,
                    Some(_) => {}
                    None => return false,
                },
                queued = self.queue.recv() => if queued.is_none() { return false },
            }
        }
    }

    async fn handle_push(&self, bytes: &[u8]) {
        match holdoff_net::decode::<LinkPush>(bytes) {
            Ok(push) if push.council == self.context.council && push.incarnation == self.incarnation => {
                self.handle_reply(push.reply, 0).await;
            }
            _ => tracing::debug!(acceptor = %self.acceptor, "dropped a malformed push"),
        }
    }

    async fn handle_reply(&self, reply: AcceptorReply, tag: u64) {
        match &reply {
            AcceptorReply::Refused { why, .. } => self.set(AcceptorHealth::Refusing(*why)),
            _ => self.set(AcceptorHealth::Connected),
        }
        let received = ReceivedReply { from: self.acceptor, reply, tag };
        // An error means that the device has stopped. This task ends next.
        drop(self.context.inbox.send(received).await);
    }

    fn set(&self, health: AcceptorHealth) {
        *self.health.lock() = health;
    }
}

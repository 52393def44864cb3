//! The link to one acceptor: sends requests, and receives replies and pushes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdoff_net::{
    Link, LinkOptions, LinkStatus, MessageSender, PeerAddress, PushEvent, PushReceiver, SecretKey,
    SenderLimits,
};
use holdoff_paxos::{NodeId, Slot};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::Error;
use super::clock::{self, Instant};
use crate::acceptor::{LinkMessage, LinkPush, LinkReply, LinkRequest, ROLE};
use crate::machine::AcceptorInfo;
use crate::{AcceptorReply, AcceptorRequest, CouncilId, RequestRefusal};

/// The limits of the queue to an acceptor. A frame of merged requests is far below the limit of the acceptor.
const SENDER_LIMITS: SenderLimits =
    SenderLimits { max_queued_bytes: 4 * 1024 * 1024, max_merged_bytes: 256 * 1024 };
/// The time after which an acceptor that has not answered counts as unreachable. The device repeats a request that still
/// matters.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

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
    requests: RequestSender,
    _receiving: AbortOnDropHandle<()>,
}

/// Sends requests to the acceptor, and knows its health.
#[derive(Clone)]
struct RequestSender {
    incarnation: u64,
    council: CouncilId,
    messages: MessageSender<LinkMessage>,
    answers: Arc<Mutex<Answers>>,
}

/// The answers of the acceptor on the current connection.
struct Answers {
    health: AcceptorHealth,
    /// The time of the first request since the last answer.
    waiting_since: Option<Instant>,
}

impl AcceptorLink {
    pub(super) fn open(context: &LinkContext, acceptor: &AcceptorInfo) -> Result<Self, Error> {
        let (link, pushes) = link(&context.key, acceptor.key, &acceptor.address, &context.options)?;
        let answers = Answers { health: AcceptorHealth::Connecting, waiting_since: None };
        let requests = RequestSender {
            incarnation: context.incarnation,
            council: context.council,
            messages: MessageSender::start(link, SENDER_LIMITS),
            answers: Arc::new(Mutex::new(answers)),
        };
        let receiver = Receiver {
            context: context.clone(),
            acceptor: acceptor.id(),
            incarnation: acceptor.incarnation,
            requests: requests.clone(),
            pushes,
        };
        let receiving = AbortOnDropHandle::new(tokio::spawn(receiver.run()));
        Ok(Self { to: acceptor.clone(), requests, _receiving: receiving })
    }

    /// Returns whether the link leads to this acceptor at its current address.
    pub(super) fn leads_to(&self, acceptor: &AcceptorInfo) -> bool {
        self.to == *acceptor
    }

    /// Queues a request, or drops it if the queue is full or the acceptor is unreachable. The device repeats requests that
    /// matter.
    pub(super) fn request(&self, request: AcceptorRequest, tag: u64) {
        self.requests.send(request, tag);
    }

    pub(super) fn health(&self) -> AcceptorHealth {
        self.requests.health()
    }
}

impl RequestSender {
    fn send(&self, request: AcceptorRequest, tag: u64) {
        // An acceptor that has lost its promises gets no requests until there is another connection.
        if matches!(self.answers.lock().health, AcceptorHealth::Wiped { .. }) {
            return;
        }
        let is_answered = !matches!(request, AcceptorRequest::Decided { .. });
        let Self { incarnation, council, .. } = *self;
        let is_queued = self.messages.send(LinkMessage { incarnation, council, tag, request });
        if is_queued && is_answered {
            self.answers.lock().waiting_since.get_or_insert_with(clock::now);
        }
    }

    fn answered(&self, health: AcceptorHealth) {
        *self.answers.lock() = Answers { health, waiting_since: None };
    }

    fn health(&self) -> AcceptorHealth {
        match self.messages.link().status() {
            LinkStatus::Waiting { why, .. } => return AcceptorHealth::Unreachable(why),
            LinkStatus::Connected => {}
            _ => return AcceptorHealth::Connecting,
        }
        let answers = self.answers.lock();
        let is_late = |since: Instant| clock::now() >= since + REQUEST_TIMEOUT;
        if answers.waiting_since.is_some_and(is_late) {
            return AcceptorHealth::Unreachable(format!("it has not answered for {REQUEST_TIMEOUT:?}"));
        }
        answers.health.clone()
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

/// Receives the replies and the news of an acceptor.
struct Receiver {
    context: LinkContext,
    acceptor: NodeId,
    incarnation: u64,
    requests: RequestSender,
    pushes: PushReceiver,
}

impl Receiver {
    async fn run(mut self) {
        // The link connects now, and from then on whenever the connection is lost. `health` reports a failure.
        drop(self.requests.messages.link().connect().await);
        while let Some(event) = self.pushes.next().await {
            match event {
                // Behind another connection may be another store.
                PushEvent::Connected => {
                    self.requests.answered(AcceptorHealth::Connecting);
                    self.fetch();
                }
                PushEvent::Missed(_) => self.fetch(),
                PushEvent::Push(bytes) => self.handle_push(&bytes).await,
                _ => {}
            }
        }
    }

    /// Requests the votes that the device has not applied, and news from now on.
    fn fetch(&self) {
        let after = Slot(self.context.applied.load(Ordering::Relaxed));
        self.requests.send(AcceptorRequest::Fetch { after }, 0);
    }

    async fn handle_push(&self, bytes: &[u8]) {
        let push = holdoff_net::decode::<LinkPush>(bytes).ok();
        let Some(push) = push.filter(|push| push.council == self.context.council) else {
            tracing::debug!(acceptor = %self.acceptor, "dropped a malformed push");
            return;
        };
        let LinkPush { incarnation, tag, reply, .. } = push;
        if incarnation != self.incarnation {
            self.requests.answered(AcceptorHealth::Wiped { incarnation });
            tracing::warn!(acceptor = %self.acceptor, "detected a wiped acceptor: remove it and add it again");
            return;
        }
        self.requests.answered(match &reply {
            AcceptorReply::Refused { why, .. } => AcceptorHealth::Refusing(*why),
            AcceptorReply::Closed(_) => AcceptorHealth::Refusing(RequestRefusal::Closed),
            _ => AcceptorHealth::Connected,
        });
        // An error means that the device has stopped. This task ends next.
        drop(self.context.inbox.send(ReceivedReply { from: self.acceptor, reply, tag }).await);
    }
}

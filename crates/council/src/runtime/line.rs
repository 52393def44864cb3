//! The line to one acceptor: questions out, answers and news in.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use holdoff_net::{Heard, Hearing, Key, Link, LinkOptions, Remote};
use holdoff_paxos::{NodeId, Slot};
use tokio::sync::mpsc;

use super::{Error, clock};
use crate::acceptor::{Push, ROLE, Reply, Request};
use crate::machine::Acceptor;
use crate::{Ask, CouncilId, Refusal, Tell};

/// As many questions wait for a connection, and as many are under way.
const QUEUED: usize = 256;
const UNDER_WAY: usize = 128;
/// A question that is not answered by then is asked again by whoever asked, if it still matters.
const PATIENCE: Duration = Duration::from_secs(5);
/// While there is no connection, it is looked this often whether there is one.
const LOOK: Duration = Duration::from_millis(100);

/// How it stands with an acceptor.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Health {
    /// Nothing is known yet.
    Connecting,
    /// It answers.
    Connected,
    /// It does not, and why.
    Unreachable(String),
    /// It has lost what it had promised, and so is another one. It is never counted.
    Wiped {
        /// The life its storage has now.
        life: u64,
    },
    /// It answers, and does not do what it is asked.
    Refusing(Refusal),
}

/// What was heard from an acceptor.
pub(super) struct Heeded {
    pub(super) from: NodeId,
    pub(super) tell: Tell,
    /// Which question it answers, if somebody wants to know: 0 if nobody does.
    pub(super) tag: u64,
}

/// What every line of a device has in common.
#[derive(Clone)]
pub(super) struct Common {
    pub(super) key: Key,
    pub(super) life: u64,
    pub(super) council: CouncilId,
    pub(super) options: LinkOptions,
    pub(super) inbox: mpsc::Sender<Heeded>,
    /// The last slot that is carried out here.
    pub(super) applied: Arc<AtomicU64>,
}

/// The line to one acceptor. When it is dropped what was asked still goes out, if it can at once.
pub(super) struct Line {
    to: Acceptor,
    asks: mpsc::Sender<(Ask, u64)>,
    health: Arc<Mutex<Health>>,
}

impl Line {
    pub(super) fn open(common: &Common, acceptor: &Acceptor) -> Result<Self, Error> {
        let (link, hearing) = link(&common.key, acceptor.key, &acceptor.address, &common.options)?;
        let (asks, questions) = mpsc::channel(QUEUED);
        let health = Arc::new(Mutex::new(Health::Connecting));
        let ends = Ends {
            common: common.clone(),
            acceptor: acceptor.id(),
            life: acceptor.life,
            link,
            hearing,
            questions,
            health: health.clone(),
        };
        tokio::spawn(ends.run());
        Ok(Self { to: acceptor.clone(), asks, health })
    }

    /// Whether it leads to this acceptor, where it is now.
    pub(super) fn leads_to(&self, acceptor: &Acceptor) -> bool {
        self.to == *acceptor
    }

    /// Asks, if there is room. What matters is asked again.
    pub(super) fn ask(&self, ask: Ask, tag: u64) {
        drop(self.asks.try_send((ask, tag)));
    }

    pub(super) fn health(&self) -> Health {
        self.health.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A link to an acceptor.
pub(super) fn link(
    key: &Key,
    acceptor: crate::PublicKey,
    address: &str,
    options: &LinkOptions,
) -> Result<(Link, Hearing), Error> {
    let remote = Remote { key: acceptor, address: address.to_owned() };
    let options = LinkOptions { role: ROLE.to_owned(), ..options.clone() };
    Ok(Link::new(key, remote, options)?)
}

/// Asks which life the acceptor's storage has.
pub(super) async fn who(link: &Link) -> Result<u64, holdoff_net::Error> {
    let reply: Reply = link.ask_within(PATIENCE, &Request::Who).await?;
    Ok(reply.life)
}

/// What the task of a line has.
struct Ends {
    common: Common,
    acceptor: NodeId,
    life: u64,
    link: Link,
    hearing: Hearing,
    questions: mpsc::Receiver<(Ask, u64)>,
    health: Arc<Mutex<Health>>,
}

impl Ends {
    async fn run(mut self) {
        loop {
            let is_on = match self.connect().await {
                Some(life) if life == self.life => self.serve().await,
                Some(life) => {
                    self.set(Health::Wiped { life });
                    let id = self.acceptor;
                    tracing::warn!(acceptor = %id, "its storage was wiped: remove it and add it again");
                    self.refuse().await
                }
                None => return,
            };
            if !is_on {
                return;
            }
        }
    }

    /// The life that the acceptor shows on a new connection; `None` when the line is not wanted any more.
    async fn connect(&mut self) -> Option<u64> {
        loop {
            let tried = match self.link.connect().await {
                Ok(()) => {
                    // What comes after this is of a later connection, at whose end may be another disk.
                    while self.hearing.try_next().is_some() {}
                    who(&self.link).await
                }
                Err(error) => Err(error),
            };
            match tried {
                Ok(life) => return Some(life),
                Err(error) => self.set(Health::Unreachable(error.to_string())),
            }
            // What was asked meanwhile is too old when there is a connection again.
            loop {
                match self.questions.try_recv() {
                    Ok(_) => {}
                    Err(mpsc::error::TryRecvError::Empty) => break,
                    Err(mpsc::error::TryRecvError::Disconnected) => return None,
                }
            }
            clock::sleep(LOOK).await;
        }
    }

    /// Asks and hears until there is another connection; whether the line is still wanted.
    async fn serve(&mut self) -> bool {
        self.set(Health::Connected);
        let (link, council, expected) = (self.link.clone(), self.common.council, self.life);
        let life = self.common.life;
        let mut under_way = FuturesUnordered::new();
        let asked = |ask: Ask, tag: u64| {
            let link = link.clone();
            async move {
                let reply = link.ask_within::<Reply>(PATIENCE, &Request::Ask { life, council, ask }).await;
                (reply, tag)
            }
        };
        let after = Slot(self.common.applied.load(Ordering::Relaxed));
        under_way.push(asked(Ask::Fetch { after }, 0));
        let mut is_wanted = true;
        loop {
            tokio::select! {
                heard = self.hearing.next() => match heard {
                    Some(Heard::Push(bytes)) => self.news(&bytes).await,
                    Some(Heard::Missed(_)) => {
                        let after = Slot(self.common.applied.load(Ordering::Relaxed));
                        under_way.push(asked(Ask::Fetch { after }, 0));
                    }
                    Some(_) => return is_wanted,
                    None => return false,
                },
                question = self.questions.recv(), if is_wanted && under_way.len() < UNDER_WAY => match question {
                    Some((ask, tag)) => under_way.push(asked(ask, tag)),
                    None => is_wanted = false,
                },
                Some((reply, tag)) = under_way.next() => match reply {
                    Ok(Reply { life, tells }) if life == expected => {
                        for tell in tells {
                            self.heed(tell, tag).await;
                        }
                    }
                    Ok(Reply { life, .. }) => {
                        self.set(Health::Wiped { life });
                        return is_wanted;
                    }
                    Err(error) => {
                        self.set(Health::Unreachable(error.to_string()));
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
        !matches!(self.link.status(), holdoff_net::Status::Connected)
    }

    /// Whoever lost its promises is not asked, until there is another connection.
    async fn refuse(&mut self) -> bool {
        loop {
            tokio::select! {
                heard = self.hearing.next() => match heard {
                    Some(Heard::Connected) => return true,
                    Some(_) => {}
                    None => return false,
                },
                question = self.questions.recv() => if question.is_none() { return false },
            }
        }
    }

    async fn news(&self, bytes: &[u8]) {
        match holdoff_net::decode::<Push>(bytes) {
            Ok(push) if push.council == self.common.council && push.life == self.life => {
                self.heed(push.tell, 0).await;
            }
            _ => tracing::debug!(acceptor = %self.acceptor, "it pushed something that cannot be read"),
        }
    }

    async fn heed(&self, tell: Tell, tag: u64) {
        match &tell {
            Tell::Refused { why, .. } => self.set(Health::Refusing(*why)),
            _ => self.set(Health::Connected),
        }
        let heeded = Heeded { from: self.acceptor, tell, tag };
        // An error means that the device is gone; so is this, in a moment.
        drop(self.common.inbox.send(heeded).await);
    }

    fn set(&self, health: Health) {
        *self.health.lock().unwrap_or_else(PoisonError::into_inner) = health;
    }
}

//! One acquisition, from the queue in this process to the store. It executes the decisions of `wait.rs`.

mod wish;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::asking::Trouble;
use crate::guard::Holding;
use crate::lease::Handover;
use crate::line::Place;
use crate::locks::Shared;
use crate::store::{Answer, Bid, Result};
use crate::tenure::{Tenure, valid_until};
use crate::wait::{Next, Reply, Wait, Why};
use crate::wakes::{Heard, Subscription};
use crate::{Error, Guard, Holder, Key, Nonce, Owner, Token, clock, metrics};

pub(crate) use wish::Wish;

/// Returns the time limit of one request. It leaves enough of the lease to read back a grant whose response was lost.
pub(crate) fn answer_limit(lease: Duration) -> Duration {
    (lease / 3).clamp(Duration::from_secs(1), Duration::from_secs(10))
}

/// The resolved parameters of an acquisition.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) key: Key,
    pub(crate) policy: Arc<holdoff_policy::Policy>,
    pub(crate) lease: Duration,
    pub(crate) deadline: Option<Duration>,
    pub(crate) cancel: Option<CancellationToken>,
    /// The displayed name of the holder.
    pub(crate) name: String,
}

#[derive(Debug)]
pub(crate) struct Pursuit {
    wish: Wish,
    wait: Wait,
    next: Next,
    lease: Duration,
    cancel: Option<CancellationToken>,
    place: Option<Place>,
    heard: Option<Subscription>,
    /// Whether [`Progress::Woke`] was returned since the last request, so that the next request may be sent.
    was_told: bool,
    holder: Option<Holder>,
    trouble: Option<Error>,
}

/// The result of a step.
#[derive(Debug)]
pub(crate) enum Progress {
    /// An event occurred, and the lock is not granted yet. The caller may probe.
    Woke,
    /// The lock was granted. Keep it, or detach it.
    Granted(Grant),
}

/// A grant, with the time at which its request was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    token: Token,
    sent: Duration,
}

enum Woken {
    Turn,
    Heard(Heard),
    Time,
    Cancelled,
}

impl Pursuit {
    pub(crate) fn begin(shared: &Arc<Shared>, terms: Terms) -> Result<Self> {
        let Terms { key, policy, lease, deadline, cancel, name } = terms;
        let owner = Owner { nonce: Nonce::fresh(), name };
        let wait = Wait::new(owner.nonce, policy, lease, deadline, clock::now());
        let mut wish = Wish::new(Arc::clone(shared), key, owner);
        let place = match shared.lines.join(&wish.key, shared.settings.most_waiters) {
            Ok(place) => Some(place),
            Err(error) => {
                wish.ended(metrics::outcome(Some(&error)));
                return Err(error);
            }
        };
        let next = wait.start(clock::now());
        let (heard, holder, trouble) = (None, None, None);
        Ok(Self { wish, wait, next, lease, cancel, place, heard, was_told: true, holder, trouble })
    }

    /// Continues until the lock is granted, or until an event after which the caller may probe.
    pub(crate) async fn step(&mut self) -> Result<Progress> {
        loop {
            let next = self.next;
            self.next = match next {
                // One contender probes for all waiting contenders of this process.
                Next::Ask { .. } if !self.was_told && self.looks_out() => {
                    self.was_told = true;
                    return Ok(Progress::Woke);
                }
                Next::Ask { waits } => {
                    self.was_told = false;
                    self.ask(waits).await?
                }
                Next::ReadBack => self.read_back().await?,
                Next::Wait { until } => match self.pause(until).await? {
                    Some(next) => next,
                    None => return Ok(Progress::Woke),
                },
                Next::Granted { token, sent } => return Ok(Progress::Granted(Grant { token, sent })),
                Next::GiveUp(why) => return Err(self.give_up(why).await),
            };
            if let Some(backoff) = self.wait.drawn() {
                metrics::backed_off(backoff);
                tracing::debug!(attempt = %backoff.after, delay = ?backoff.delay, "a lock is held");
            }
        }
    }

    fn looks_out(&mut self) -> bool {
        self.place.as_mut().is_none_or(Place::looks_out)
    }

    async fn ask(&mut self, waits: Duration) -> Result<Next> {
        let sent = clock::now();
        let reply = match &mut self.place {
            Some(place) if place.is_my_turn() => self.ask_store(waits).await?,
            // While another contender of this process is ahead in the queue, the lock counts as held.
            _ => {
                let members = self.wish.shared.lines.members(&self.wish.key);
                Reply::Held { free_in: None, waiting: u32::try_from(members).unwrap_or(u32::MAX) }
            }
        };
        Ok(self.wait.answered(reply, sent, clock::now(), clock::roll()))
    }

    async fn ask_store(&mut self, waits: Duration) -> Result<Reply> {
        let wish = &mut self.wish;
        let store = wish.shared.asking.store();
        // Subscribe before the request, so that no notification is missed between the response and the wait.
        let _ = self.heard.get_or_insert_with(|| store.subscribe(&wish.key));
        metrics::asked(&wish.key);
        let (key, owner) = (wish.key.clone(), wish.owner.clone());
        let bid = Bid { key, owner, lease: self.lease, waits: Some(waits) };
        let call = wish.send(bid, answer_limit(self.lease));
        let answer = match in_time(self.cancel.as_ref(), self.wait.deadline(), call).await {
            Ok(answer) => answer,
            Err(cut) => return Err(self.cut_short(cut).await),
        };
        let (reply, holder, trouble) = understand(answer);
        (self.holder, self.trouble) = (holder, trouble);
        Ok(reply)
    }

    async fn read_back(&mut self) -> Result<Next> {
        let (shared, key) = (Arc::clone(&self.wish.shared), self.wish.key.clone());
        let call = shared.asking.store().granted(&key, self.wish.owner.nonce);
        let call = shared.asking.call(answer_limit(self.lease), call);
        match in_time(self.cancel.as_ref(), self.wait.deadline(), call).await {
            Ok(found) => Ok(self.wait.read_back(found.ok().flatten(), clock::now(), clock::roll())),
            Err(cut) => Err(self.cut_short(cut).await),
        }
    }

    /// Waits, and returns the next action; `None` if a notification arrived but the wait continues.
    async fn pause(&mut self, until: Duration) -> Result<Option<Next>> {
        let woken = {
            let (place, heard) = (&mut self.place, &mut self.heard);
            let waits_for_turn = place.as_ref().is_some_and(|place| !place.is_my_turn());
            let turn = async {
                match place {
                    Some(place) => place.turn().await,
                    None => std::future::pending().await,
                }
            };
            let word = async {
                match heard {
                    Some(heard) => heard.heard().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = cancelled(self.cancel.as_ref()) => Woken::Cancelled,
                () = turn, if waits_for_turn => Woken::Turn,
                heard = word => Woken::Heard(heard),
                () = clock::sleep_until(until) => Woken::Time,
            }
        };
        let (now, roll) = (clock::now(), clock::roll());
        let attempts = self.wait.attempts();
        let next = match woken {
            Woken::Turn => self.wait.heard(Heard::Next(self.wish.owner.nonce), now, roll),
            Woken::Heard(heard) => self.wait.heard(heard, now, roll),
            Woken::Time => self.wait.woke(now),
            Woken::Cancelled => return Err(self.stop(Error::Cancelled).await),
        };
        if matches!(next, Next::Ask { .. }) && self.wait.attempts() == attempts {
            metrics::woken(&self.wish.key);
        }
        if matches!((woken, next), (Woken::Heard(_), Next::Wait { .. })) {
            self.next = next;
            return Ok(None);
        }
        Ok(Some(next))
    }

    async fn cut_short(&mut self, cut: Cut) -> Error {
        let error = match cut {
            Cut::Cancelled => Error::Cancelled,
            Cut::TimeUp => self.out_of_time(),
        };
        self.stop(error).await
    }

    /// Returns a guard that maintains the granted lock.
    pub(crate) fn keep(mut self, grant: Grant) -> Guard {
        self.granted(grant);
        let Self { mut wish, place, lease, .. } = self;
        wish.was_asked = false;
        let Grant { token, sent } = grant;
        Guard::keep(wish.shared.holding(&wish.key, wish.owner.nonce, token, sent, lease, place))
    }

    /// Returns the granted lock for a client that maintains it itself.
    pub(crate) fn hand_over(mut self, grant: Grant) -> Handover {
        self.granted(grant);
        Handover::new(self.wish, self.place, grant.token, valid_until(grant.sent, self.lease))
    }

    fn granted(&mut self, Grant { token, .. }: Grant) {
        self.wish.ended(metrics::outcome(None));
        let (attempts, waited) = (self.wait.attempts(), self.wait.waited(clock::now()));
        tracing::debug!(%token, attempts, ?waited, "a lock is acquired");
    }

    async fn give_up(&mut self, why: Why) -> Error {
        let now = clock::now();
        let error = match (self.trouble.take(), why) {
            (Some(trouble), _) => trouble,
            (None, Why::Deadline) => self.out_of_time(),
            (None, Why::Exhausted | Why::Refused) => Error::Contended {
                holder: self.holder.take().map(Box::new),
                attempts: self.wait.attempts(),
                waited: self.wait.waited(now),
            },
        };
        self.stop(error).await
    }

    fn out_of_time(&self) -> Error {
        let holder = self.holder.clone().map(Box::new);
        Error::DeadlineExceeded { holder, waited: self.wait.waited(clock::now()) }
    }

    /// Ends the acquisition without the lock, and withdraws it from the store.
    async fn stop(&mut self, error: Error) -> Error {
        self.wish.ended(metrics::outcome(Some(&error)));
        self.place = None;
        self.heard = None;
        self.wish.withdraw().await;
        error
    }

    /// Ends the acquisition because the lock is no longer needed.
    pub(crate) async fn found(&mut self) {
        self.wish.ended("found");
        self.place = None;
        self.wish.withdraw().await;
    }

    pub(crate) fn key(&self) -> &Key {
        &self.wish.key
    }
}

/// Converts a response to the reply for the core, the holder for display, and the error to report on giving up.
pub(crate) fn understand(
    answer: std::result::Result<Answer, Trouble>,
) -> (Reply, Option<Holder>, Option<Error>) {
    match answer {
        Ok(Answer::Granted(token)) => (Reply::Granted(token), None, None),
        Ok(Answer::Held(held)) => {
            let reply = Reply::Held { free_in: Some(held.free_in), waiting: held.waiting };
            (reply, held.holder, None)
        }
        Err(Trouble { error, was_asked }) => {
            let reply = match (error.is_transient(), was_asked) {
                (true, true) => Reply::Unclear,
                (true, false) => Reply::Unasked,
                (false, _) => Reply::Refused,
            };
            (reply, None, Some(error))
        }
    }
}

/// The reason why a call was abandoned.
enum Cut {
    Cancelled,
    TimeUp,
}

/// Runs a call until the deadline or the cancellation.
async fn in_time<T>(
    cancel: Option<&CancellationToken>,
    deadline: Option<Duration>,
    call: impl Future<Output = T>,
) -> std::result::Result<T, Cut> {
    let up = async {
        match deadline {
            Some(deadline) => clock::sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = cancelled(cancel) => Err(Cut::Cancelled),
        answer = call => Ok(answer),
        () = up => Err(Cut::TimeUp),
    }
}

async fn cancelled(cancel: Option<&CancellationToken>) {
    match cancel {
        Some(cancel) => cancel.cancelled().await,
        None => std::future::pending().await,
    }
}

impl Shared {
    pub(crate) fn holding(
        &self,
        key: &Key,
        nonce: Nonce,
        token: Token,
        sent: Duration,
        lease: Duration,
        place: Option<Place>,
    ) -> Holding {
        Holding {
            asking: self.asking.clone(),
            key: key.clone(),
            nonce,
            token,
            lease,
            tenure: Arc::new(Mutex::new(Tenure::new(sent, lease))),
            policy: Arc::clone(&self.renewals),
            since: clock::now(),
            place: Mutex::new(place),
            later: self.later.clone(),
        }
    }
}

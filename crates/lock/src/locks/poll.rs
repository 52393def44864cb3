//! Acquisition without waiting, for controllers that must not sleep.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Acquire, Shared};
use crate::pursuit::{Terms, Wish, answer_limit, understand};
use crate::store::{Bid, Result};
use crate::wait::{Next, Reply, Wait, Why};
use crate::{Error, Guard, Nonce, Owner, clock, metrics};

/// The maximum number of keys remembered between polls.
const MOST_KEYS: usize = 10_000;
/// How long a key is remembered.
const REMEMBERED: Duration = Duration::from_secs(300);
/// The maximum number of requests in one poll. A grant that arrives too late to be valid is requested again.
const MOST_ASKS: u32 = 3;

/// The result of a poll.
#[derive(Debug)]
pub enum Polled {
    /// The lock was granted.
    Granted(Guard),
    /// The lock is not free. Poll again after this time, or when an event suggests that it is free.
    ComeBack(Duration),
}

/// The state of the polled keys between polls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Polls(Arc<Mutex<Memory>>);

#[derive(Debug, Default)]
struct Memory {
    keys: HashMap<[u8; 32], Polling>,
    tidied: Duration,
}

#[derive(Debug)]
struct Polling {
    owner: Owner,
    wait: Wait,
    seen: Duration,
}

impl Polls {
    fn take(&self, digest: &[u8; 32], now: Duration) -> Option<Polling> {
        let mut memory = self.memory();
        if memory.keys.len() >= MOST_KEYS || now.saturating_sub(memory.tidied) > REMEMBERED {
            memory.keys.retain(|_, polling| now.saturating_sub(polling.seen) <= REMEMBERED);
            memory.tidied = now;
        }
        memory.keys.remove(digest).filter(|polling| now.saturating_sub(polling.seen) <= REMEMBERED)
    }

    fn remember(&self, digest: [u8; 32], polling: Polling) {
        let mut memory = self.memory();
        // A poller that is not remembered gets a new nonce, so it receives no reservation by name. There is no other
        // effect.
        if memory.keys.len() < MOST_KEYS {
            memory.keys.insert(digest, polling);
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Acquire {
    /// Asks for the lock without waiting: see [`Locks::poll`](super::Locks::poll). If the policy gives up, the poll
    /// starts again from the first attempt: the controller decides when to stop polling.
    pub async fn poll(self) -> Result<Polled> {
        let terms = self.terms()?;
        let shared = Arc::clone(&self.locks.shared);
        let place = shared.first_place(&terms.key);
        let now = clock::now();
        let fresh = |owner: Owner, now| {
            let Terms { policy, lease, deadline, .. } = &terms;
            Polling {
                wait: Wait::new(owner.nonce, Arc::clone(policy), *lease, *deadline, now),
                owner,
                seen: now,
            }
        };
        let stranger = || Owner { nonce: Nonce::fresh(), name: terms.name.clone() };
        let mut polling = match shared.polls.take(terms.key.digest(), now) {
            Some(mut polling) => {
                // If the backoff has ended, this is the next attempt. Otherwise the poll is early and does not count.
                polling.wait.woke(now);
                polling
            }
            None => fresh(stranger(), now),
        };
        let mut wish = Wish::new(Arc::clone(&shared), terms.key.clone(), polling.owner.clone());
        let (next, trouble) = if place.is_some() {
            ask(&shared, &terms, &mut polling, &mut wish).await
        } else {
            let held = Reply::Held { free_in: None, waiting: 0 };
            (polling.wait.answered(held, now, now, clock::roll()), None)
        };
        let now = clock::now();
        let again = match next {
            Next::Granted { token, sent } => {
                wish.was_asked = false;
                wish.ended(metrics::outcome(None));
                let nonce = polling.owner.nonce;
                let holding = shared.holding(&terms.key, nonce, token, sent, terms.lease, place);
                return Ok(Polled::Granted(Guard::keep(holding)));
            }
            Next::GiveUp(Why::Refused) => return Err(trouble.unwrap_or(Error::Cancelled)),
            Next::Wait { until } => until.saturating_sub(now),
            Next::GiveUp(_) | Next::Ask { .. } | Next::ReadBack => {
                polling = fresh(polling.owner, now);
                terms.policy.cap()
            }
        };
        wish.was_asked = false;
        wish.ended("contended");
        polling.seen = now;
        shared.polls.remember(*terms.key.digest(), polling);
        Ok(Polled::ComeBack(again))
    }
}

async fn ask(
    shared: &Shared,
    terms: &Terms,
    polling: &mut Polling,
    wish: &mut Wish,
) -> (Next, Option<Error>) {
    let (asking, limit) = (&shared.asking, answer_limit(terms.lease));
    let mut next = polling.wait.start(clock::now());
    let mut last = None;
    for _ in 0..MOST_ASKS {
        let Next::Ask { waits } = next else { break };
        let (key, owner) = (terms.key.clone(), polling.owner.clone());
        let bid = Bid { key, owner, lease: terms.lease, waits: Some(waits) };
        metrics::asked(&bid.key);
        let sent = clock::now();
        let (reply, _, trouble) = understand(wish.send(bid, limit).await);
        last = trouble;
        next = polling.wait.answered(reply, sent, clock::now(), clock::roll());
        if next == Next::ReadBack {
            let found = asking.call(limit, asking.store().granted(&terms.key, polling.owner.nonce)).await;
            next = polling.wait.read_back(found.ok().flatten(), clock::now(), clock::roll());
        }
    }
    (next, last)
}

//! Acquiring without waiting, for controllers that must not sleep.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Acquire, Shared};
use crate::pursuit::{Terms, Wish, answer_limit, understand};
use crate::store::{Bid, Result};
use crate::wait::{Next, Reply, Wait, Why};
use crate::{Error, Guard, Nonce, Owner, clock, metrics};

/// How many keys are remembered between polls.
const MOST_KEYS: usize = 10_000;
/// For how long.
const REMEMBERED: Duration = Duration::from_secs(300);
/// How often the store is asked in one poll: a grant that is found too late is asked for again.
const MOST_ASKS: u32 = 3;

/// What came of a poll.
#[derive(Debug)]
pub enum Polled {
    /// The lock is held.
    Granted(Guard),
    /// It is not free: poll again after so long, or when something suggests that it may be.
    ComeBack(Duration),
}

/// What is remembered of the keys that are polled for.
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
        // Whoever is not remembered is not told by name that it is its turn; that is all.
        if memory.keys.len() < MOST_KEYS {
            memory.keys.insert(digest, polling);
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Acquire {
    /// Asks for the lock without waiting: [`Locks::poll`](super::Locks::poll). Where the policy would give up, it
    /// begins anew: when to stop polling is the controller's affair.
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
                // If its time has come, this is its next attempt; otherwise it came early, which is none.
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

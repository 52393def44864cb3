//! Acquisition without waiting, for controllers that must not sleep.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::{Acquire, Shared};
use crate::acquisition::{AcquireParams, Registration, classify_outcome, request_timeout};
use crate::store::{AcquireRequest, Result};
use crate::wait::{StoreReply, WaitAction, WaitFailure, WaitState};
use crate::{Error, Guard, Nonce, Owner, clock, metrics};

/// The maximum number of keys remembered between polls.
const MAX_KEYS: usize = 10_000;
/// How long a key is remembered.
const RETENTION: Duration = Duration::from_secs(300);
/// The maximum number of requests in one poll. A grant that arrives too late to be valid is requested again.
const MAX_REQUESTS: u32 = 3;

/// The result of a poll.
#[derive(Debug)]
pub enum Polled {
    /// The lock was granted.
    Granted(Guard),
    /// The lock is not free. Poll again after this time, or when an event suggests that it is free.
    RetryAfter(Duration),
}

/// The state of the polled keys between polls.
#[derive(Clone, Debug, Default)]
pub(crate) struct PollStates(Arc<Mutex<PollCache>>);

#[derive(Debug, Default)]
struct PollCache {
    keys: HashMap<[u8; 32], PollState>,
    pruned_at: Duration,
}

#[derive(Debug)]
struct PollState {
    owner: Owner,
    wait: WaitState,
    polled_at: Duration,
}

impl PollStates {
    fn take(&self, digest: &[u8; 32], now: Duration) -> Option<PollState> {
        let mut cache = self.0.lock();
        if cache.keys.len() >= MAX_KEYS || now.saturating_sub(cache.pruned_at) > RETENTION {
            cache.keys.retain(|_, state| now.saturating_sub(state.polled_at) <= RETENTION);
            cache.pruned_at = now;
        }
        cache.keys.remove(digest).filter(|state| now.saturating_sub(state.polled_at) <= RETENTION)
    }

    fn remember(&self, digest: [u8; 32], state: PollState) {
        let mut cache = self.0.lock();
        // A poller that is not remembered gets a new nonce, so it receives no reservation by name. There is no other
        // effect.
        if cache.keys.len() < MAX_KEYS {
            cache.keys.insert(digest, state);
        }
    }
}

impl Acquire {
    /// Asks for the lock without waiting: see [`Locks::poll`](super::Locks::poll). If the policy gives up, the poll
    /// starts again from the first attempt: the controller decides when to stop polling.
    pub async fn poll(self) -> Result<Polled> {
        let params = self.params()?;
        let shared = Arc::clone(&self.locks.shared);
        let position = shared.try_join_as_head(&params.key);
        let now = clock::now();
        let fresh = |owner: Owner, now| {
            let AcquireParams { policy, lease, deadline, .. } = &params;
            PollState {
                wait: WaitState::new(owner.nonce, Arc::clone(policy), *lease, *deadline, now),
                owner,
                polled_at: now,
            }
        };
        let new_owner = || Owner { nonce: Nonce::random(), name: params.name.clone() };
        let mut state = match shared.polls.take(params.key.digest(), now) {
            Some(mut state) => {
                // If the backoff has ended, this is the next attempt. Otherwise the poll is early and does not count.
                state.wait.timer_fired(now);
                state
            }
            None => fresh(new_owner(), now),
        };
        let mut registration =
            Registration::new(Arc::clone(&shared), params.key.clone(), state.owner.clone());
        let (next, error) = if position.is_some() {
            request(&shared, &params, &mut state, &mut registration).await
        } else {
            let held = StoreReply::Held { free_in: None, waiting: 0 };
            (state.wait.on_reply(held, now, now, clock::roll()), None)
        };
        let now = clock::now();
        let retry_after = match next {
            WaitAction::Granted { token, sent } => {
                registration.may_be_recorded = false;
                registration.ended(metrics::outcome(None));
                let nonce = state.owner.nonce;
                let held = shared.held_lock(&params.key, nonce, token, sent, params.lease, position);
                return Ok(Polled::Granted(Guard::new(held)));
            }
            WaitAction::GiveUp(WaitFailure::Rejected) => return Err(error.unwrap_or(Error::Cancelled)),
            WaitAction::Wait { until } => until.saturating_sub(now),
            WaitAction::GiveUp(_) | WaitAction::TryAcquire { .. } | WaitAction::ReadBack => {
                state = fresh(state.owner, now);
                params.policy.cap()
            }
        };
        registration.may_be_recorded = false;
        registration.ended("contended");
        state.polled_at = now;
        shared.polls.remember(*params.key.digest(), state);
        Ok(Polled::RetryAfter(retry_after))
    }
}

/// Asks the store, and reads back an unknown outcome.
async fn request(
    shared: &Shared,
    params: &AcquireParams,
    state: &mut PollState,
    registration: &mut Registration,
) -> (WaitAction, Option<Error>) {
    let (client, timeout) = (&shared.client, request_timeout(params.lease));
    let mut next = state.wait.first_action(clock::now());
    let mut last = None;
    for _ in 0..MAX_REQUESTS {
        let WaitAction::TryAcquire { waits_for } = next else { break };
        let (key, owner) = (params.key.clone(), state.owner.clone());
        let request = AcquireRequest { key, owner, lease: params.lease, waits_for: Some(waits_for) };
        metrics::requested(&request.key);
        let sent = clock::now();
        let (reply, _, error) = classify_outcome(registration.send(request, timeout).await);
        last = error;
        next = state.wait.on_reply(reply, sent, clock::now(), clock::roll());
        if next == WaitAction::ReadBack {
            let found = client.call(timeout, client.store().granted(&params.key, state.owner.nonce)).await;
            next = state.wait.on_read_back(found.ok().flatten(), clock::now(), clock::roll());
        }
    }
    (next, last)
}

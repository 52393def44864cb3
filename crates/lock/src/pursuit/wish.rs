//! An acquisition's state in the store, which is withdrawn in every case.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::asking::Trouble;
use crate::locks::Shared;
use crate::store::{Answer, Bid};
use crate::{Key, Owner, clock, metrics};

/// The delays before each withdrawal call. After the last one fails, the state in the store expires.
const TELLINGS: [Duration; 3] = [Duration::ZERO, Duration::from_millis(500), Duration::from_secs(2)];
const LIMIT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Wish {
    pub(crate) shared: Arc<Shared>,
    pub(crate) key: Key,
    pub(crate) owner: Owner,
    /// Whether the store may have state of this acquisition.
    pub(crate) was_asked: bool,
    in_flight: InFlight,
    began: Duration,
    is_counted: bool,
}

/// A request that was sent and has no response yet. It is never accessed concurrently; the mutex only makes it `Sync`.
#[derive(Default)]
struct InFlight(Mutex<Option<Call>>);

type Call = Pin<Box<dyn Future<Output = Result<Answer, Trouble>> + Send>>;

impl InFlight {
    fn call(&mut self) -> &mut Option<Call> {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for InFlight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InFlight")
    }
}

impl Wish {
    pub(crate) fn new(shared: Arc<Shared>, key: Key, owner: Owner) -> Self {
        let (was_asked, in_flight, is_counted) = (false, InFlight::default(), false);
        Self { shared, key, owner, was_asked, in_flight, began: clock::now(), is_counted }
    }

    /// Sends a request to the store. A sent request cannot be recalled: if the caller stops waiting, the request is
    /// kept, so that the withdrawal follows it and does not overtake it.
    pub(crate) async fn send(&mut self, bid: Bid, limit: Duration) -> Result<Answer, Trouble> {
        self.was_asked = true;
        let asking = self.shared.asking.clone();
        let call = async move { asking.call(limit, asking.store().try_acquire(&bid)).await };
        let answer = self.in_flight.call().insert(Box::pin(call)).await;
        *self.in_flight.call() = None;
        answer
    }

    /// Records the outcome, at most once.
    pub(crate) fn ended(&mut self, outcome: &'static str) {
        if !std::mem::replace(&mut self.is_counted, true) {
            metrics::ended(&self.key, outcome, clock::now().saturating_sub(self.began));
        }
    }

    /// Withdraws the acquisition from the store. If that fails, a background task retries it when this value is
    /// dropped.
    pub(crate) async fn withdraw(&mut self) {
        if self.was_asked {
            let in_flight = self.in_flight.call();
            let call = async {
                settled(in_flight).await;
                self.shared.asking.store().withdraw(&self.key, self.owner.nonce).await
            };
            self.was_asked = self.shared.asking.insist(LIMIT, call).await.is_err();
        }
    }
}

/// Waits until no request is in flight.
async fn settled(in_flight: &mut Option<Call>) {
    if let Some(call) = in_flight {
        // The result does not matter: the withdrawal follows.
        _ = call.await;
        *in_flight = None;
    }
}

impl Drop for Wish {
    fn drop(&mut self) {
        self.ended("cancelled");
        if !self.was_asked {
            return;
        }
        // Without a runtime no withdrawal can be sent. The state in the store expires.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (shared, key, nonce) = (Arc::clone(&self.shared), self.key.clone(), self.owner.nonce);
        let mut in_flight = self.in_flight.call().take();
        runtime.spawn(async move {
            settled(&mut in_flight).await;
            for pause in TELLINGS {
                clock::sleep_until(clock::now().saturating_add(pause)).await;
                let call = shared.asking.store().withdraw(&key, nonce);
                if shared.asking.insist(LIMIT, call).await.is_ok() {
                    return;
                }
            }
        });
    }
}

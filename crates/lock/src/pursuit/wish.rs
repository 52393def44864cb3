//! A wish for a lock that leaves nothing behind, however it ends.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::asking::Trouble;
use crate::locks::Shared;
use crate::store::{Answer, Bid};
use crate::{Key, Owner, clock, metrics};

/// How often the store is told that a wish is withdrawn, and how long apart; after that its note ends by itself.
const TELLINGS: [Duration; 3] = [Duration::ZERO, Duration::from_millis(500), Duration::from_secs(2)];
const LIMIT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Wish {
    pub(crate) shared: Arc<Shared>,
    pub(crate) key: Key,
    pub(crate) owner: Owner,
    /// Whether the store may know of it.
    pub(crate) was_asked: bool,
    in_flight: InFlight,
    began: Duration,
    is_counted: bool,
}

/// A bid that was sent and has no answer yet. It is never looked at by two at once; the mutex only says so.
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

    /// Asks the store. What was sent cannot be called back: if the caller stops waiting for the answer, it is kept,
    /// so that the withdrawal can follow it, and does not overtake it.
    pub(crate) async fn send(&mut self, bid: Bid, limit: Duration) -> Result<Answer, Trouble> {
        self.was_asked = true;
        let asking = self.shared.asking.clone();
        let call = async move { asking.call(limit, asking.store().try_acquire(&bid)).await };
        let answer = self.in_flight.call().insert(Box::pin(call)).await;
        *self.in_flight.call() = None;
        answer
    }

    /// Counts how it ended, once.
    pub(crate) fn ended(&mut self, outcome: &'static str) {
        if !std::mem::replace(&mut self.is_counted, true) {
            metrics::ended(&self.key, outcome, clock::now().saturating_sub(self.began));
        }
    }

    /// Wipes it out of the store. Should that fail, it is tried again in the background.
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

/// Waits until no bid is under way any more.
async fn settled(in_flight: &mut Option<Call>) {
    if let Some(call) = in_flight {
        // Whatever it says, it is about to be wiped out.
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
        // Without a runtime there is nobody to tell the store; what it knows ends by itself.
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

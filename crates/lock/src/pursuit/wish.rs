//! A wish for a lock that leaves nothing behind, however it ends.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tracing::Instrument as _;

use crate::asking::Trouble;
use crate::locks::Shared;
use crate::store::{Answer, Bid};
use crate::{Error, Key, Owner, clock, metrics};

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
    /// Closed when the last bid that was sent has its answer, or will have none.
    in_flight: Option<oneshot::Receiver<()>>,
    began: Duration,
    is_counted: bool,
}

impl Wish {
    pub(crate) fn new(shared: Arc<Shared>, key: Key, owner: Owner) -> Self {
        let (was_asked, in_flight, is_counted) = (false, None, false);
        Self { shared, key, owner, was_asked, in_flight, began: clock::now(), is_counted }
    }

    /// Asks the store. What was sent cannot be called back: if the caller stops waiting for the answer, it goes on by
    /// itself, so that the withdrawal can follow it, and is not overtaken by it.
    pub(crate) fn send(
        &mut self,
        bid: Bid,
        limit: Duration,
    ) -> impl Future<Output = Result<Answer, Trouble>> + Send + use<> {
        let (done, in_flight) = oneshot::channel::<()>();
        (self.in_flight, self.was_asked) = (Some(in_flight), true);
        let asking = self.shared.asking.clone();
        let call = async move {
            let answer = asking.call(limit, asking.store().try_acquire(&bid)).await;
            drop(done);
            answer
        };
        let call = tokio::spawn(call.in_current_span());
        async move {
            let unfinished = |error| Error::Store { transient: true, source: Box::new(error) };
            call.await.unwrap_or_else(|error| Err(Trouble { error: unfinished(error), was_asked: true }))
        }
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
            let in_flight = &mut self.in_flight;
            let call = async {
                settled(in_flight).await;
                self.shared.asking.store().withdraw(&self.key, self.owner.nonce).await
            };
            self.was_asked = self.shared.asking.insist(LIMIT, call).await.is_err();
        }
    }
}

/// Waits until no bid is under way any more.
async fn settled(in_flight: &mut Option<oneshot::Receiver<()>>) {
    if let Some(answer) = in_flight {
        // Nothing is ever sent.
        _ = answer.await;
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
        let mut in_flight = self.in_flight.take();
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

//! A wish for a lock that leaves nothing behind, however it ends.

use std::sync::Arc;
use std::time::Duration;

use crate::locks::Shared;
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
    began: Duration,
    is_counted: bool,
}

impl Wish {
    pub(crate) fn new(shared: Arc<Shared>, key: Key, owner: Owner) -> Self {
        Self { shared, key, owner, was_asked: false, began: clock::now(), is_counted: false }
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
            let call = self.shared.asking.store().withdraw(&self.key, self.owner.nonce);
            self.was_asked = self.shared.asking.insist(LIMIT, call).await.is_err();
        }
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
        runtime.spawn(async move {
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

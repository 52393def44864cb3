//! Locks: held.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::new::time;
use super::{Client, Error, clock};

/// A lock that is ours.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) namespace: String,
    pub(super) key: String,
    pub(super) token: u64,
    /// What proves that it is ours.
    pub(super) lock: String,
    pub(super) lease: Duration,
}

#[derive(Serialize)]
struct Proof<'a> {
    namespace: &'a str,
    key: &'a str,
    token: u64,
    lock: &'a str,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "time")]
    lease: Option<Duration>,
}

#[derive(Deserialize)]
struct Renewed {
    expires_in: f64,
}

impl Held {
    fn proof(&self, lease: Option<Duration>) -> Proof<'_> {
        let Self { namespace, key, token, lock, .. } = self;
        Proof { namespace, key, token: *token, lock, lease }
    }

    /// Locks end a little before the daemon thinks so.
    fn margin(&self) -> Duration {
        self.lease / 20
    }
}

/// A lock that is held, and renewed as long as this lives. Dropped, it is let go in the background.
#[derive(Debug)]
pub struct LockGuard {
    client: Client,
    held: Held,
    /// Until when it is ours; `None` when it is lost.
    until: watch::Receiver<Option<Duration>>,
    renewing: JoinHandle<()>,
    is_released: bool,
}

impl LockGuard {
    pub(super) fn keep(client: Client, held: Held, until: Duration) -> Self {
        let (told, heard) = watch::channel(Some(until));
        let renewing = tokio::spawn(renew(client.clone(), held.clone(), told));
        Self { client, held, until: heard, renewing, is_released: false }
    }

    /// The fencing token: it only grows. Whatever the lock protects should refuse smaller ones than it has seen.
    pub fn token(&self) -> u64 {
        self.held.token
    }

    /// Whether it is still ours, as far as can be known here.
    pub fn is_held(&self) -> bool {
        self.until.borrow().is_some_and(|until| clock::now() + self.held.margin() < until)
    }

    /// Waits until it is lost. It is told before anybody else can have the lock.
    pub async fn lost(&self) {
        let mut until = self.until.clone();
        // An error means that nobody renews any more, which comes to the same.
        let _ = until.wait_for(Option::is_none).await;
    }

    /// Lets it go.
    pub async fn release(mut self) -> Result<(), Error> {
        self.is_released = true;
        self.renewing.abort();
        let _: Value = self.client.post("/v1/locks/release", &self.held.proof(None)).await?;
        Ok(())
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        self.renewing.abort();
        // Without a runtime the lease ends by itself.
        if let (false, Ok(runtime)) = (self.is_released, tokio::runtime::Handle::try_current()) {
            let (client, held) = (self.client.clone(), self.held.clone());
            runtime.spawn(async move {
                let _: Result<Value, Error> = client.post("/v1/locks/release", &held.proof(None)).await;
            });
        }
    }
}

/// Renews at every third of the lease, until it is lost.
async fn renew(client: Client, held: Held, told: watch::Sender<Option<Duration>>) {
    let pause = held.lease / 3;
    let mut next = pause;
    loop {
        let until = told.borrow().unwrap_or_default();
        let left = |now: Duration| until.saturating_sub(now + held.margin());
        tokio::time::sleep(next.min(left(clock::now()))).await;
        let asked = clock::now();
        let patience = left(asked);
        if patience.is_zero() {
            break;
        }
        let proof = held.proof(Some(held.lease));
        match tokio::time::timeout(patience, client.post::<Renewed, _>("/v1/locks/renew", &proof)).await {
            Ok(Ok(Renewed { expires_in })) => {
                let lasts = Duration::try_from_secs_f64(expires_in).unwrap_or_default();
                told.send_replace(Some(asked + lasts));
                next = pause;
            }
            Ok(Err(error)) if error.is("lock-lost") => break,
            // The rest of the lease is for trying again.
            _ => next = pause / 8,
        }
    }
    told.send_replace(None);
}

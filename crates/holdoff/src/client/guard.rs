//! Held locks.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::new::time;
use super::{Client, Error, clock};

/// A lock that this client holds.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) namespace: String,
    pub(super) key: String,
    pub(super) token: u64,
    /// The proof of ownership.
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

    /// Returns the safety margin: the client considers a lease expired slightly before the daemon does.
    fn margin(&self) -> Duration {
        self.lease / 20
    }
}

/// A held lock, renewed for as long as the guard exists. A dropped guard releases the lock in the background.
#[derive(Debug)]
pub struct LockGuard {
    client: Client,
    held: Held,
    /// The time until which the lock is held; `None` after its loss.
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

    /// Returns the fencing token, which only increases. The protected resource should refuse tokens smaller
    /// than the largest it has seen.
    pub fn token(&self) -> u64 {
        self.held.token
    }

    /// Returns whether the lock is still held, as far as this client can know.
    pub fn is_held(&self) -> bool {
        self.until.borrow().is_some_and(|until| clock::now() + self.held.margin() < until)
    }

    /// Waits until the lock is lost. It returns before another client can acquire the lock. Cancel-safe.
    pub async fn lost(&self) {
        let mut until = self.until.clone();
        // An error means that renewal has ended, which has the same consequence.
        let _ = until.wait_for(Option::is_none).await;
    }

    /// Releases the lock.
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
        // Without a runtime the lease expires by itself.
        if let (false, Ok(runtime)) = (self.is_released, tokio::runtime::Handle::try_current()) {
            let (client, held) = (self.client.clone(), self.held.clone());
            runtime.spawn(async move {
                let _: Result<Value, Error> = client.post("/v1/locks/release", &held.proof(None)).await;
            });
        }
    }
}

/// Renews the lease after each third of it, until the lock is lost.
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
            // After a failed renewal the rest of the lease is used for further attempts.
            _ => next = pause / 8,
        }
    }
    told.send_replace(None);
}

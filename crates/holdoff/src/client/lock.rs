//! Locks: the request, and the guard of a held lock.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::new::time;
use super::{Client, Error};

/// The longest wait that the daemon grants in one request.
const MAX_WAIT_PER_REQUEST: Duration = Duration::from_secs(25);
const WAIT: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(30);

/// A lock request, to be configured and sent.
#[derive(Clone, Debug)]
pub struct Lock {
    client: Client,
    key: String,
    namespace: Option<String>,
    name: Option<String>,
    lease: Duration,
    wait: Duration,
}

#[derive(Serialize)]
struct AcquireRequest<'a> {
    key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(serialize_with = "time")]
    lease: Option<Duration>,
    #[serde(serialize_with = "time")]
    wait: Option<Duration>,
}

#[derive(Deserialize)]
struct AcquireResponse {
    namespace: String,
    #[serde(deserialize_with = "digits")]
    token: u64,
    lock: String,
    expires_in: f64,
}

/// Reads a fencing token, which is a string of decimal digits in JSON.
fn digits<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
}

impl Client {
    /// Creates a lock request. The defaults are a lease of 30 s and a wait of at most 60 s.
    pub fn lock(&self, key: impl Into<String>) -> Lock {
        let (client, key) = (self.clone(), key.into());
        Lock { client, key, namespace: None, name: None, lease: LEASE, wait: WAIT }
    }
}

impl Lock {
    /// Sets the namespace; the default is `default`.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Sets the display name of the holder.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the lease. The guard renews it for as long as it exists.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets the longest wait for the lock; zero means no wait.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Acquires the lock, and waits for it if necessary. If the wait expires, the error is `lock-held`.
    ///
    /// If the future is dropped during a request, the daemon may still grant the lock, which is then held
    /// until its lease expires.
    pub async fn acquire(self) -> Result<LockGuard, Error> {
        let until = now() + self.wait;
        loop {
            let asked = now();
            let left = until.saturating_sub(asked);
            match self.ask(left.min(MAX_WAIT_PER_REQUEST)).await {
                Ok(granted) => {
                    let AcquireResponse { namespace, token, lock, expires_in } = granted;
                    let held = HeldLock { namespace, key: self.key, token, lock, lease: self.lease };
                    let lasts = Duration::try_from_secs_f64(expires_in).unwrap_or_default();
                    return Ok(LockGuard::start(self.client, held, asked + lasts));
                }
                Err(error) if error.is("lock-held") && now() < until => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn ask(&self, wait: Duration) -> Result<AcquireResponse, Error> {
        let request = AcquireRequest {
            key: &self.key,
            namespace: self.namespace.as_deref(),
            name: self.name.as_deref(),
            lease: Some(self.lease),
            // The daemon accepts whole milliseconds.
            wait: Some(Duration::from_millis(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))),
        };
        self.client.post("/v1/locks/acquire", &request).await
    }
}

/// A lock that this client holds.
#[derive(Clone, Debug)]
struct HeldLock {
    namespace: String,
    key: String,
    token: u64,
    /// The proof of ownership.
    lock: String,
    lease: Duration,
}

#[derive(Serialize)]
struct LeaseProof<'a> {
    namespace: &'a str,
    key: &'a str,
    token: String,
    lock: &'a str,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "time")]
    lease: Option<Duration>,
}

#[derive(Deserialize)]
struct RenewResponse {
    expires_in: f64,
}

impl HeldLock {
    fn proof(&self, lease: Option<Duration>) -> LeaseProof<'_> {
        let Self { namespace, key, token, lock, .. } = self;
        LeaseProof { namespace, key, token: token.to_string(), lock, lease }
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
    held: HeldLock,
    /// The time until which the lock is held; `None` after its loss.
    until: watch::Receiver<Option<Duration>>,
    renewing: JoinHandle<()>,
    is_released: bool,
}

impl LockGuard {
    fn start(client: Client, held: HeldLock, until: Duration) -> Self {
        let (sender, receiver) = watch::channel(Some(until));
        let renewing = tokio::spawn(renew(client.clone(), held.clone(), sender));
        Self { client, held, until: receiver, renewing, is_released: false }
    }

    /// Returns the fencing token, which only increases. The protected resource should refuse tokens smaller
    /// than the largest it has seen.
    pub fn token(&self) -> u64 {
        self.held.token
    }

    /// Returns whether the lock is still held, as far as this client can know.
    pub fn is_held(&self) -> bool {
        self.until.borrow().is_some_and(|until| now() + self.held.margin() < until)
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
async fn renew(client: Client, held: HeldLock, sender: watch::Sender<Option<Duration>>) {
    let pause = held.lease / 3;
    let mut next = pause;
    loop {
        let until = sender.borrow().unwrap_or_default();
        let left = |at: Duration| until.saturating_sub(at + held.margin());
        tokio::time::sleep(next.min(left(now()))).await;
        let asked = now();
        let timeout = left(asked);
        if timeout.is_zero() {
            break;
        }
        let proof = held.proof(Some(held.lease));
        match tokio::time::timeout(timeout, client.post::<RenewResponse, _>("/v1/locks/renew", &proof)).await
        {
            Ok(Ok(RenewResponse { expires_in })) => {
                let lasts = Duration::try_from_secs_f64(expires_in).unwrap_or_default();
                sender.send_replace(Some(asked + lasts));
                next = pause;
            }
            Ok(Err(error)) if error.is("lock-lost") => break,
            // After a failed renewal the rest of the lease is used for further attempts.
            _ => next = pause / 8,
        }
    }
    sender.send_replace(None);
}

/// Returns a monotonic time that includes suspension of the machine, because leases expire during suspension
/// too.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    Duration::from_secs(part(time.tv_sec)) + Duration::from_nanos(part(time.tv_nsec))
}

/// On other systems the wall clock includes suspension of the machine. If it is set back, the client
/// considers a lock held for longer than it is; the fencing token still protects the resource.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
#[expect(clippy::disallowed_methods, reason = "the only access to the clock")]
fn now() -> Duration {
    use std::time::SystemTime;

    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

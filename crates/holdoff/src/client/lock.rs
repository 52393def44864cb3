//! The acquisition of locks.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::guard::{Held, LockGuard};
use super::new::time;
use super::{Client, Error, clock};

/// The longest wait that the daemon grants in one request.
const AT_ONCE: Duration = Duration::from_secs(25);
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
struct Wanted<'a> {
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
struct Granted {
    namespace: String,
    token: u64,
    lock: String,
    expires_in: f64,
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
        let until = clock::now() + self.wait;
        loop {
            let asked = clock::now();
            let left = until.saturating_sub(asked);
            match self.ask(left.min(AT_ONCE)).await {
                Ok(granted) => {
                    let Granted { namespace, token, lock, expires_in } = granted;
                    let held = Held { namespace, key: self.key, token, lock, lease: self.lease };
                    let lasts = Duration::try_from_secs_f64(expires_in).unwrap_or_default();
                    return Ok(LockGuard::keep(self.client, held, asked + lasts));
                }
                Err(error) if error.is("lock-held") && clock::now() < until => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn ask(&self, wait: Duration) -> Result<Granted, Error> {
        let wanted = Wanted {
            key: &self.key,
            namespace: self.namespace.as_deref(),
            name: self.name.as_deref(),
            lease: Some(self.lease),
            // The daemon accepts whole milliseconds.
            wait: Some(Duration::from_millis(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))),
        };
        self.client.post("/v1/locks/acquire", &wanted).await
    }
}

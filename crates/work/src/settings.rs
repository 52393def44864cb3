//! Settings: the sections `[work]`, `[http]`, `[credentials]` and `[signals]` of the file.

mod credentials;
mod network;
mod policies;
mod sections;
#[cfg(test)]
mod tests;

pub(crate) use network::Network;
pub use policies::{LongWait, LongWaits};
#[cfg(feature = "http")]
pub(crate) use sections::MAX_TIMEOUT;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use holdoff_policy::file::{self, DeTable, Reader};
use holdoff_policy::{BreakerOptions, BudgetOptions, Growth, Jitter, Policy, Problems};

const KIB: usize = 1024;
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The upper limit of every size setting.
const MAX_BYTES: u64 = 16 << 20;

/// The settings of durable work: the file's `[work]`.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// The time that a claimed step stays with a worker that does not renew its lease.
    pub lease: Duration,
    /// The interval at which a worker looks for due steps when it receives no notification.
    pub poll: Duration,
    /// The time after which a live step is reported as stale. No policy may wait longer than this at once.
    pub stale_after: Duration,
    /// The number of times a step may lose its worker before it fails.
    pub max_rescues: u32,
    /// The maximum size of a payload, in bytes.
    pub max_payload: usize,
    /// The maximum size of an output, in bytes.
    pub max_output: usize,
    /// The maximum size of all inputs of a step together, in bytes: of the outputs of the steps that it depends on.
    pub max_inputs: usize,
    /// The maximum number of steps in one task.
    pub max_steps: usize,
    /// The maximum number of steps that wait in one queue; beyond it, submissions are refused.
    pub max_depth: u64,
    /// The maximum number of lanes in the store. A lane is a combination of namespace, queue, operation, kind and
    /// priority. A task that needs another lane is refused.
    pub max_lanes: u64,
    /// The maximum number of lanes in one namespace.
    pub max_namespace_lanes: u64,
    /// The minimum time that a deduplication key is remembered. A live task's key is never forgotten.
    pub dedup_retention: Duration,
    /// The waits of steps that return to the queue without having failed.
    pub requeue: RequeueSettings,
    /// The retention of finished work.
    pub history: HistorySettings,
    /// The notifications about failed and conflicted steps.
    pub notify: Vec<NotifyRule>,
    /// Steps that are HTTP requests.
    pub http: HttpSettings,
    /// Signals, and the gateway that receives them.
    pub signals: SignalSettings,
}

/// Signals, and the gateway that receives them: `[signals]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SignalSettings {
    /// The time for which a failed task suppresses signals with its fingerprint.
    pub suppress_failed: Duration,
    /// The maximum time that a signal waits for other signals with its fingerprint; then it proceeds without their
    /// lock.
    pub wait: Duration,
    /// The maximum number of signals that wait in one daemon; further signals are rejected and must be sent again
    /// later.
    pub max_waiters: usize,
}

/// The waits of steps that return to the queue without having failed, by reason: `[work.requeue]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RequeueSettings {
    /// The worker was shut down.
    pub shutdown: Duration,
    /// The worker was lost. This is the minimum; the wait follows the step's own policy.
    pub rescue: Duration,
    /// The destination was at a limit.
    pub busy: Duration,
}

/// The retention of finished work: `[work.history]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct HistorySettings {
    /// The time that a finished step is kept.
    pub keep: Duration,
    /// The time that a failed step is kept if no operator retries or discards it.
    pub keep_failed: Duration,
    /// The maximum number of finished steps that are kept.
    pub max_rows: u64,
}

/// A notification about failed and conflicted steps: one of `[[work.notify]]`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NotifyRule {
    /// Only for operations that match; `*` matches any sequence of characters.
    pub operation: Option<String>,
    /// Only for this queue.
    pub queue: Option<String>,
    /// Only for this namespace.
    pub namespace: Option<String>,
    /// The URL that receives the message as a `POST`.
    pub url: String,
    /// The name of the credential to send.
    pub credential: Option<String>,
}

/// Steps that are HTTP requests: `[http]`.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct HttpSettings {
    /// Whether loopback, private and other special addresses are refused. If absent, a daemon refuses them if it
    /// requires API tokens. Link-local addresses are always refused.
    pub deny_private: Option<bool>,
    /// The networks and the hosts that may be called although their addresses are private. A host may begin with `*.`
    /// for all names below it.
    pub allow: Vec<String>,
    /// The maximum duration of a request, unless the step sets its own.
    pub timeout: Duration,
    /// The maximum of the timeout that a step may set.
    pub max_timeout: Duration,
    /// The maximum number of bytes that are read from a response.
    pub max_response: usize,
    /// The maximum number of redirects that are followed.
    pub max_redirects: usize,
    /// The limits of single destinations, by host or by host and port.
    pub destinations: BTreeMap<String, DestinationLimits>,
    /// The limits of all other destinations.
    pub destination: DestinationLimits,
    /// The credentials by name: `[credentials.NAME]`.
    pub credentials: BTreeMap<String, Credential>,
    /// The hosts that each credential may be sent to, by the credential's name. A host may have a port, and may begin
    /// with `*.` for all names below it. A credential without hosts is sent only to the hosts of the notifications
    /// that name it (`[[work.notify]]`).
    pub credential_hosts: BTreeMap<String, Vec<String>>,
}

/// The limits of one destination: `[http.destinations."HOST"]`.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct DestinationLimits {
    /// The maximum number of concurrent requests from this process.
    pub concurrency: u32,
    /// The maximum number of requests per second from this process; no limit if absent.
    pub rate: Option<f64>,
    /// The share of requests that may be retries.
    pub budget: BudgetOptions,
    /// The number of retries per second that are allowed even if the budget is exhausted.
    pub retry_floor: f64,
    /// The circuit breaker: when requests to the destination stop.
    pub breaker: BreakerOptions,
}

/// The source of an access token: `[credentials.NAME]`.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Credential {
    /// A token that does not change until its source changes.
    Token {
        /// The location of the token.
        token: Secret,
        /// The header that carries the token as it is; `Authorization: Bearer` if absent.
        header: Option<String>,
    },
    /// OAuth 2 client credentials.
    ClientCredentials {
        /// The URL of the token endpoint.
        token_url: String,
        /// The client's id.
        client_id: String,
        /// The client's secret.
        client_secret: Secret,
        /// The requested scope of the token.
        scope: Option<String>,
    },
    /// An endpoint that returns a new token for a request with the secret.
    Refresh {
        /// The endpoint.
        url: String,
        /// The secret, sent as a bearer token.
        secret: Secret,
    },
}

/// The location of a secret. The secret itself is read when it is needed, and never stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Secret {
    /// An environment variable.
    Env(String),
    /// A file; white space around its content is ignored.
    File(PathBuf),
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease: MINUTE,
            poll: Duration::from_secs(1),
            stale_after: DAY,
            max_rescues: 5,
            max_payload: 256 * KIB,
            max_output: 256 * KIB,
            max_inputs: 4096 * KIB,
            max_steps: 10_000,
            max_depth: 10_000_000,
            max_lanes: 10_000,
            max_namespace_lanes: 1000,
            dedup_retention: DAY,
            requeue: RequeueSettings::default(),
            history: HistorySettings::default(),
            notify: Vec::new(),
            http: HttpSettings::default(),
            signals: SignalSettings::default(),
        }
    }
}

impl Default for SignalSettings {
    fn default() -> Self {
        Self { suppress_failed: HOUR, wait: Duration::from_secs(5), max_waiters: 1024 }
    }
}

impl Default for RequeueSettings {
    fn default() -> Self {
        Self { shutdown: Duration::ZERO, rescue: Duration::from_secs(1), busy: Duration::from_secs(1) }
    }
}

impl Default for HistorySettings {
    fn default() -> Self {
        Self { keep: 7 * DAY, keep_failed: 90 * DAY, max_rows: 1_000_000 }
    }
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            deny_private: None,
            allow: Vec::new(),
            timeout: Duration::from_secs(30),
            max_timeout: 5 * MINUTE,
            max_response: 1024 * KIB,
            max_redirects: 5,
            destinations: BTreeMap::new(),
            destination: DestinationLimits::default(),
            credentials: BTreeMap::new(),
            credential_hosts: BTreeMap::new(),
        }
    }
}

impl Default for DestinationLimits {
    fn default() -> Self {
        Self {
            concurrency: 64,
            rate: None,
            budget: BudgetOptions { ratio: 0.2, burst: 100 },
            retry_floor: 5.0,
            breaker: BreakerOptions { cool_down: cool_down(), ..BreakerOptions::default() },
        }
    }
}

/// Returns the time between two probes of a destination that is down: from one to five seconds. A probe is one request,
/// and all steps for the destination wait for its result.
fn cool_down() -> Policy {
    let growth = Growth::exponential(Duration::from_secs(1), 2.0);
    // These numbers are valid; a test of the gates depends on them.
    let jitter = Jitter::Scaled { low: 0.5, high: 1.5 };
    Policy::builder(growth)
        .jitter(jitter)
        .cap(Duration::from_secs(5))
        .build()
        .unwrap_or_else(|_| Policy::standard())
}

impl Settings {
    /// Reads the sections of `holdoff.toml` that configure durable work. Absent keys have the values of
    /// [`Settings::default`]. If there is any problem, nothing is read and all problems are reported.
    ///
    /// The policies are ignored here; [`PolicySet::from_toml`](holdoff_policy::PolicySet::from_toml) checks them and
    /// the names of the sections.
    ///
    /// ```
    /// use holdoff_work::Settings;
    /// use std::time::Duration;
    ///
    /// let settings = Settings::from_toml("[work]\nlease = \"5m\"\nmax_payload = \"1MiB\"")?;
    /// assert_eq!(settings.lease, Duration::from_secs(300));
    /// assert_eq!(settings.max_payload, 1_048_576);
    ///
    /// let problems = Settings::from_toml("[work]\nlese = \"5m\"").unwrap_err();
    /// assert!(problems.to_string().contains("did you mean `lease`?"));
    /// # Ok::<(), holdoff_policy::Problems>(())
    /// ```
    pub fn from_toml(text: &str) -> Result<Self, Problems> {
        file::read(text, read)
    }
}

fn read(reader: &mut Reader<'_>, document: &DeTable<'_>) -> Settings {
    let mut settings = Settings::default();
    if let Some(value) = document.get("credentials") {
        (settings.http.credentials, settings.http.credential_hosts) = credentials::read(reader, value);
    }
    if let Some(table) = reader.table_in(document, "work") {
        let names = document.get("credentials").and_then(|value| value.get_ref().as_table());
        sections::read_work(reader, table, names, &mut settings);
    }
    if let Some(table) = reader.table_in(document, "http") {
        sections::read_http(reader, table, &mut settings.http);
    }
    if let Some(table) = reader.table_in(document, "signals") {
        sections::read_signals(reader, table, &mut settings.signals);
    }
    settings
}

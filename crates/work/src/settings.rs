//! What can be set: the file's `[work]`, `[http]`, `[credentials]` and `[signals]`.

mod address;
mod credentials;
mod http;
mod notify;
mod policies;
mod read;
#[cfg(test)]
mod schema_test;
mod secret;
mod signals;
#[cfg(test)]
mod tests;
mod work;

pub use policies::{LongWait, LongWaits};

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use holdoff_policy::{BreakerOptions, BudgetOptions};

const KIB: usize = 1024;
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The most that any size can be set to.
const MAX_BYTES: u64 = 16 << 20;

/// What can be set about durable work: the file's `[work]`.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// How long a claimed step stays with a worker that says nothing.
    pub lease: Duration,
    /// How often a worker looks for due steps when nobody tells it.
    pub poll: Duration,
    /// After this time a live step is reported as stale. No policy may wait longer than this at once.
    pub stale_after: Duration,
    /// How often a step may lose its worker before it fails.
    pub max_rescues: u32,
    /// The largest payload, in bytes.
    pub max_payload: usize,
    /// The largest output, in bytes.
    pub max_output: usize,
    /// The most steps in one task.
    pub max_steps: usize,
    /// The most steps that may wait in one queue; beyond it nothing is taken in.
    pub max_depth: u64,
    /// The most lanes that are made in the store: namespace, queue, operation, kind and priority together are one. A
    /// task that would need another is refused.
    pub max_lanes: u64,
    /// The same, in one namespace.
    pub max_namespace_lanes: u64,
    /// How long a deduplication key is remembered, at least; a live task's key is never forgotten.
    pub dedup_retention: Duration,
    /// How long a step waits that comes back without having failed.
    pub requeue: Requeue,
    /// What is kept of finished work.
    pub history: History,
    /// Who is told when a step fails or is in conflict.
    pub notify: Vec<Notify>,
    /// Steps that are HTTP requests.
    pub http: HttpSettings,
    /// Signals, and the gateway they come in by.
    pub signals: Signals,
}

/// Signals, and the gateway they come in by: `[signals]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Signals {
    /// How long a task that failed keeps signals with its fingerprint from making another.
    pub suppress_failed: Duration,
    /// How long a signal waits for others with its fingerprint, at most; then it does without their lock.
    pub wait: Duration,
    /// How many signals may wait in one daemon; beyond it they are told to come back.
    pub max_waiters: usize,
}

/// How long a step waits that comes back without having failed, by reason: `[work.requeue]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Requeue {
    /// Its worker was shut down.
    pub shutdown: Duration,
    /// Its worker vanished: the least, beside the step's own policy.
    pub rescue: Duration,
    /// Its destination was at its limit.
    pub busy: Duration,
}

/// What is kept of finished work: `[work.history]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct History {
    /// How long a finished step is kept.
    pub keep: Duration,
    /// How long a failed step is kept that nobody retries or discards.
    pub keep_failed: Duration,
    /// The most finished steps that are kept.
    pub max_rows: u64,
}

/// Who is told when a step fails or is in conflict: one of `[[work.notify]]`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Notify {
    /// Only for operations like this; `*` stands for any run of characters.
    pub operation: Option<String>,
    /// Only for this queue.
    pub queue: Option<String>,
    /// Only for this namespace.
    pub namespace: Option<String>,
    /// Where the message is posted.
    pub url: String,
    /// The credential to use, by name.
    pub credential: Option<String>,
}

/// Steps that are HTTP requests: `[http]`.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct HttpSettings {
    /// Whether loopback, private, link-local and other special addresses are refused.
    pub deny_private: bool,
    /// How long a request may take, unless the step says otherwise.
    pub timeout: Duration,
    /// The most of an answer that is read, in bytes.
    pub max_response: usize,
    /// How many redirects are followed.
    pub max_redirects: usize,
    /// What is different about single destinations: a host, or a host and a port.
    pub destinations: BTreeMap<String, Destination>,
    /// What holds for every other destination.
    pub destination: Destination,
    /// Credentials by name: `[credentials.NAME]`.
    pub credentials: BTreeMap<String, Credential>,
    /// Where each credential may go, by its name: hosts, each with or without a port, `*.` for any names before the
    /// rest. A credential that has none goes nowhere but to those who are told by it (`[[work.notify]]`).
    pub credential_hosts: BTreeMap<String, Vec<String>>,
}

/// The limits of one destination: `[http.destinations."HOST"]`.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Destination {
    /// The most requests at once, from this process.
    pub concurrency: u32,
    /// The most requests a second, from this process; no limit if absent.
    pub rate: Option<f64>,
    /// How many of the requests may be retries.
    pub budget: BudgetOptions,
    /// When the destination is left alone.
    pub breaker: BreakerOptions,
}

/// How to get a token: `[credentials.NAME]`.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Credential {
    /// A token that stays as it is until its source changes.
    Token {
        /// Where it stands.
        token: Secret,
    },
    /// OAuth 2, by the client's own id and secret.
    ClientCredentials {
        /// Where tokens are given out.
        token_url: String,
        /// The client's id.
        client_id: String,
        /// The client's secret.
        client_secret: Secret,
        /// What the token is to be good for.
        scope: Option<String>,
    },
    /// An endpoint that gives out a new token when asked with the secret.
    Refresh {
        /// The endpoint.
        url: String,
        /// What is sent to it, as a bearer token.
        secret: Secret,
    },
}

/// Where a secret stands. The secret itself is read when it is needed, and kept nowhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Secret {
    /// An environment variable.
    Env(String),
    /// A file; white space around its content does not count.
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
            max_steps: 10_000,
            max_depth: 10_000_000,
            max_lanes: 10_000,
            max_namespace_lanes: 1000,
            dedup_retention: DAY,
            requeue: Requeue::default(),
            history: History::default(),
            notify: Vec::new(),
            http: HttpSettings::default(),
            signals: Signals::default(),
        }
    }
}

impl Default for Signals {
    fn default() -> Self {
        Self { suppress_failed: HOUR, wait: Duration::from_secs(5), max_waiters: 1024 }
    }
}

impl Default for Requeue {
    fn default() -> Self {
        Self { shutdown: Duration::ZERO, rescue: Duration::from_secs(1), busy: Duration::from_secs(1) }
    }
}

impl Default for History {
    fn default() -> Self {
        Self { keep: 7 * DAY, keep_failed: 90 * DAY, max_rows: 1_000_000 }
    }
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            deny_private: false,
            timeout: Duration::from_secs(30),
            max_response: 1024 * KIB,
            max_redirects: 5,
            destinations: BTreeMap::new(),
            destination: Destination::default(),
            credentials: BTreeMap::new(),
            credential_hosts: BTreeMap::new(),
        }
    }
}

impl Default for Destination {
    fn default() -> Self {
        Self {
            concurrency: 64,
            rate: None,
            budget: BudgetOptions { ratio: 0.2, burst: 100 },
            breaker: BreakerOptions::default(),
        }
    }
}

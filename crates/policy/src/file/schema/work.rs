//! The sections about durable work: `[work]`, `[http]`, `[credentials]` and `[signals]`.

use std::collections::BTreeMap;

use schemars::JsonSchema;

use super::DurationText;

/// How durable work behaves.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct WorkTable {
    /// How long a claimed step stays with a worker that says nothing. From 1s to 1d; default: 60s.
    lease: Option<DurationText>,
    /// How often a worker looks for due steps when nobody tells it. From 10ms to 1h; default: 1s.
    poll: Option<DurationText>,
    /// After this time a live step is reported as stale, and no policy may wait longer at once. Default: 24h.
    stale_after: Option<DurationText>,
    /// How often a step may lose its worker before it fails. Default: 5.
    #[schemars(range(max = 1000))]
    max_rescues: Option<u32>,
    /// The largest payload. At most 16MiB; default: 256KiB.
    max_payload: Option<SizeValue>,
    /// The largest output. At most 16MiB; default: 256KiB.
    max_output: Option<SizeValue>,
    /// The most steps in one task. Default: 10000.
    #[schemars(range(min = 1, max = 1_000_000))]
    max_steps: Option<u32>,
    /// The most steps that may wait in one queue. Default: 10000000.
    #[schemars(range(min = 1, max = 1_000_000_000_000_u64))]
    max_depth: Option<u64>,
    /// The most lanes in the store; namespace, queue, operation, kind and priority together are one. Default: 10000.
    #[schemars(range(min = 1, max = 1_000_000))]
    max_lanes: Option<u64>,
    /// The most lanes in one namespace. Default: 1000.
    #[schemars(range(min = 1, max = 1_000_000))]
    max_namespace_lanes: Option<u64>,
    /// How long a deduplication key is remembered, at least. Default: 24h.
    dedup_retention: Option<DurationText>,
    /// How long a step waits that comes back without having failed, by reason.
    requeue: Option<RequeueTable>,
    /// What is kept of finished work.
    history: Option<HistoryTable>,
    /// Who is told when a step fails or is in conflict.
    notify: Option<Vec<NotifyTable>>,
}

/// A size in bytes, or a text such as "256KiB" or "1MiB".
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(super) enum SizeValue {
    /// The number of bytes.
    Bytes(u64),
    /// A whole number and a unit: B, KiB, MiB or GiB.
    Text(String),
}

/// How long a step waits that comes back without having failed. No longer than `stale_after`.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct RequeueTable {
    /// Its worker was shut down. Default: 0s.
    shutdown: Option<DurationText>,
    /// Its worker vanished. Default: 1s.
    rescue: Option<DurationText>,
    /// Its destination was at its limit. Default: 1s.
    busy: Option<DurationText>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct HistoryTable {
    /// How long a finished step is kept. Default: 7d.
    keep: Option<DurationText>,
    /// How long a failed step is kept that nobody retries or discards. Default: 90d.
    keep_failed: Option<DurationText>,
    /// The most finished steps that are kept. Default: 1000000.
    #[schemars(range(max = 1_000_000_000_000_u64))]
    max_rows: Option<u64>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct NotifyTable {
    /// Only for operations like this; `*` stands for any run of characters.
    operation: Option<String>,
    /// Only for this queue.
    queue: Option<String>,
    /// Only for this namespace.
    namespace: Option<String>,
    /// Where the message is posted: http or https.
    url: String,
    /// The credential to use, by its name under `credentials`.
    credential: Option<String>,
}

/// Steps that are HTTP requests.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct HttpTable {
    /// Whether loopback, private, link-local and other special addresses are refused. Default: false.
    deny_private: Option<bool>,
    /// How long a request may take, unless the step says otherwise. From 1ms to 1d; default: 30s.
    timeout: Option<DurationText>,
    /// The most of an answer that is read. At most 16MiB; default: 1MiB.
    max_response: Option<SizeValue>,
    /// How many redirects are followed. Default: 5.
    #[schemars(range(max = 20))]
    max_redirects: Option<u32>,
    /// What holds for every destination, where it has no entry of its own that says otherwise.
    destination: Option<DestinationTable>,
    /// What is different about single destinations: a host, or a host and a port.
    destinations: Option<BTreeMap<String, DestinationTable>>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct DestinationTable {
    /// The most requests at once, from one process. Default: 64.
    #[schemars(range(min = 1, max = 100_000))]
    concurrency: Option<u32>,
    /// The most requests a second, from one process. Without it: no limit.
    #[schemars(range(min = 0.001, max = 1_000_000))]
    rate: Option<f64>,
    /// How many of the requests may be retries.
    budget: Option<BudgetTable>,
    /// When the destination is left alone.
    breaker: Option<BreakerTable>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct BudgetTable {
    /// How many retries each success earns. Default: 0.2.
    #[schemars(range(min = 0, max = 1000))]
    ratio: Option<f64>,
    /// How many retries can be saved up. Default: 100.
    #[schemars(range(max = 1_000_000))]
    burst: Option<u32>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct BreakerTable {
    /// Opens when at least this share of the recent calls failed. Default: 0.5.
    #[schemars(range(min = 0, max = 1))]
    failure_ratio: Option<f64>,
    /// Never opens on fewer recent calls than this. Default: 20.
    #[schemars(range(min = 1, max = 1_000_000))]
    min_calls: Option<u32>,
    /// How far back "recent" reaches. From 1ms to 1d; default: 10s.
    window: Option<DurationText>,
    /// How many probes in a row must succeed before it closes. Default: 1.
    #[schemars(range(min = 1, max = 1000))]
    probes: Option<u32>,
}

/// How to get a token.
#[derive(JsonSchema)]
#[schemars(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum CredentialTable {
    /// A token that stays as it is until its source changes.
    Token {
        /// Where it stands.
        token: SecretTable,
        /// Where it may go: hosts, each with or without a port; `*.` stands for any names before the rest. Without it:
        /// nowhere, but to those who are told by it.
        hosts: Option<Vec<String>>,
    },
    /// OAuth 2, by the client's own id and secret.
    ClientCredentials {
        /// Where tokens are given out.
        token_url: String,
        /// The client's id.
        client_id: String,
        /// Where the client's secret stands.
        client_secret: SecretTable,
        /// What the token is to be good for.
        scope: Option<String>,
        /// Where it may go: hosts, each with or without a port; `*.` stands for any names before the rest. Without it:
        /// nowhere, but to those who are told by it.
        hosts: Option<Vec<String>>,
    },
    /// An endpoint that gives out a new token when asked with the secret.
    Refresh {
        /// The endpoint.
        url: String,
        /// Where the secret stands that is sent to it, as a bearer token.
        secret: SecretTable,
        /// Where it may go: hosts, each with or without a port; `*.` stands for any names before the rest. Without it:
        /// nowhere, but to those who are told by it.
        hosts: Option<Vec<String>>,
    },
}

/// Where a secret stands. The secret itself is never in this file.
#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum SecretTable {
    /// In this environment variable.
    Env(String),
    /// In this file.
    File(String),
}

/// Signals, and the gateway they come in by.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct SignalsTable {
    /// How long a task that failed keeps signals with its fingerprint from making another. Default: 1h.
    suppress_failed: Option<DurationText>,
    /// How long a signal waits for others with its fingerprint, at most; then it does without their lock. At most
    /// 8s; default: 5s.
    wait: Option<DurationText>,
    /// How many signals may wait in one daemon; beyond it they are told to come back. Default: 1024.
    #[schemars(range(min = 1, max = 100_000))]
    max_waiters: Option<u32>,
}

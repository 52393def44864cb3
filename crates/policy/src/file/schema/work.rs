//! The sections of durable work: `[work]`, `[http]`, `[credentials]` and `[signals]`.

use std::collections::BTreeMap;

use schemars::JsonSchema;

use super::DurationText;

/// Settings of durable work.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct WorkTable {
    /// The lease of a claimed step. A worker that reports nothing for this time loses the step. From 1s to
    /// 1d; default: 60s.
    lease: Option<DurationText>,
    /// The interval at which a worker polls for due steps if it receives no notification. From 10ms to 1h;
    /// default: 1s.
    poll: Option<DurationText>,
    /// A live step older than this is reported as stale, and no policy may wait longer at once. Default: 24h.
    stale_after: Option<DurationText>,
    /// The number of rescues after lost workers before a step fails. Default: 5.
    #[schemars(range(max = 1000))]
    max_rescues: Option<u32>,
    /// The largest payload. At most 16MiB; default: 256KiB.
    max_payload: Option<SizeValue>,
    /// The largest output. At most 16MiB; default: 256KiB.
    max_output: Option<SizeValue>,
    /// The largest size of all inputs of a step together: of the outputs of the steps that it depends on. At most 1GiB;
    /// default: 4MiB.
    max_inputs: Option<SizeValue>,
    /// The largest number of steps in one task. Default: 10000.
    #[schemars(range(min = 1, max = 1_000_000))]
    max_steps: Option<u32>,
    /// The largest number of steps that may wait in one queue. Default: 10000000.
    #[schemars(range(min = 1, max = 1_000_000_000_000_u64))]
    max_depth: Option<u64>,
    /// The largest number of lanes in the store. A lane is a combination of namespace, queue, operation, kind
    /// and priority. Default: 10000.
    #[schemars(range(min = 1, max = 1_000_000))]
    max_lanes: Option<u64>,
    /// The largest number of lanes in one namespace. Default: 1000.
    #[schemars(range(min = 1, max = 1_000_000))]
    max_namespace_lanes: Option<u64>,
    /// The minimum time for which the store remembers a deduplication key. Default: 24h.
    dedup_retention: Option<DurationText>,
    /// The delay of a step that returns to its queue without a failure, by reason.
    requeue: Option<RequeueTable>,
    /// The retention of finished work.
    history: Option<HistoryTable>,
    /// The receivers of a notification when a step fails or is in conflict.
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

/// The delay of a step that returns to its queue without a failure. No longer than `stale_after`.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct RequeueTable {
    /// The worker shut down. Default: 0s.
    shutdown: Option<DurationText>,
    /// The worker vanished. Default: 1s.
    rescue: Option<DurationText>,
    /// The destination was at its limit. Default: 1s.
    busy: Option<DurationText>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct HistoryTable {
    /// The retention of a finished step. Default: 7d.
    keep: Option<DurationText>,
    /// The retention of a failed step that an operator neither retries nor discards. Default: 90d.
    keep_failed: Option<DurationText>,
    /// The largest number of finished steps in the store. Default: 1000000.
    #[schemars(range(max = 1_000_000_000_000_u64))]
    max_rows: Option<u64>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct NotifyTable {
    /// Matches operations by this pattern; `*` stands for any run of characters.
    operation: Option<String>,
    /// Matches this queue only.
    queue: Option<String>,
    /// Matches this namespace only.
    namespace: Option<String>,
    /// The http or https URL that receives the message.
    url: String,
    /// The name under `credentials` of the credential to use.
    credential: Option<String>,
}

/// HTTP steps: steps that send an HTTP request.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct HttpTable {
    /// Whether requests to loopback, private and other special addresses are refused. Default: true if API
    /// tokens are required. Requests to link-local addresses are always refused.
    deny_private: Option<bool>,
    /// The networks and hosts that may be called although their addresses are private; `*.` stands for any
    /// names before the rest.
    allow: Option<Vec<String>>,
    /// The timeout of a request, unless the step sets its own. From 1ms to `max_timeout`; default: 30s.
    timeout: Option<DurationText>,
    /// The maximum of the timeout that a step may set. From 1ms to 1h; default: 5m.
    max_timeout: Option<DurationText>,
    /// The largest part of a response that is read. At most 16MiB; default: 1MiB.
    max_response: Option<SizeValue>,
    /// The largest number of redirects that a request follows. Default: 5.
    #[schemars(range(max = 20))]
    max_redirects: Option<u32>,
    /// The settings of every destination that has no entry of its own for the key.
    destination: Option<DestinationTable>,
    /// The settings of single destinations: a host, or a host and a port.
    destinations: Option<BTreeMap<String, DestinationTable>>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct DestinationTable {
    /// The largest number of concurrent requests from one process. Default: 64.
    #[schemars(range(min = 1, max = 100_000))]
    concurrency: Option<u32>,
    /// The largest number of requests a second from one process. Without it: no limit.
    #[schemars(range(min = 0.001, max = 1_000_000))]
    rate: Option<f64>,
    /// The share of the requests that may be retries.
    budget: Option<BudgetTable>,
    /// The circuit breaker of the destination.
    breaker: Option<BreakerTable>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct BudgetTable {
    /// The number of retries that each success earns. Default: 0.2.
    #[schemars(range(min = 0, max = 1000))]
    ratio: Option<f64>,
    /// The largest number of retries in the bucket. Default: 100.
    #[schemars(range(max = 1_000_000))]
    burst: Option<u32>,
    /// The number of retries per second that are allowed even if the bucket is empty. Default: 5.
    #[schemars(range(min = 0.001, max = 1_000_000))]
    floor: Option<f64>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct BreakerTable {
    /// The breaker opens when at least this share of the recent calls failed. Default: 0.5.
    #[schemars(range(min = 0, max = 1))]
    failure_ratio: Option<f64>,
    /// The breaker never opens on fewer recent calls than this. Default: 20.
    #[schemars(range(min = 1, max = 1_000_000))]
    min_calls: Option<u32>,
    /// The window of the recent calls. From 1ms to 1d; default: 10s.
    window: Option<DurationText>,
    /// The number of consecutive successful probes that closes the breaker. Default: 1.
    #[schemars(range(min = 1, max = 1000))]
    probes: Option<u32>,
}

/// The source of an API token.
#[derive(JsonSchema)]
#[schemars(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum CredentialTable {
    /// An API token that is constant until its source changes.
    Token {
        /// The source of the token.
        token: SecretTable,
        /// The header that carries the token as it is. Default: `Authorization`, with `Bearer` before the token.
        header: Option<String>,
        /// The hosts that may receive the token, each with or without a port; `*.` stands for any names
        /// before the rest. Without it: only the hosts of `notify` entries that use this credential.
        hosts: Option<Vec<String>>,
    },
    /// OAuth 2 with the client's own id and secret.
    ClientCredentials {
        /// The endpoint that issues tokens.
        token_url: String,
        /// The client's id.
        client_id: String,
        /// The source of the client's secret.
        client_secret: SecretTable,
        /// The scope to request.
        scope: Option<String>,
        /// The hosts that may receive the token, each with or without a port; `*.` stands for any names
        /// before the rest. Without it: only the hosts of `notify` entries that use this credential.
        hosts: Option<Vec<String>>,
    },
    /// An endpoint that issues a new token in exchange for the secret.
    Refresh {
        /// The endpoint.
        url: String,
        /// The source of the secret, which the request carries as a bearer token.
        secret: SecretTable,
        /// The hosts that may receive the token, each with or without a port; `*.` stands for any names
        /// before the rest. Without it: only the hosts of `notify` entries that use this credential.
        hosts: Option<Vec<String>>,
    },
}

/// The source of a secret. The secret itself is never in this file.
#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum SecretTable {
    /// This environment variable.
    Env(String),
    /// This file.
    File(String),
}

/// Signals (deduplicated alerts) and the gateway that accepts them.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct SignalsTable {
    /// The time for which a failed task suppresses new tasks from signals with its fingerprint. Default: 1h.
    suppress_failed: Option<DurationText>,
    /// The longest time that a signal waits for the lock of its fingerprint; then it continues without the
    /// lock. At most 8s; default: 5s.
    wait: Option<DurationText>,
    /// The largest number of waiting signals in one daemon; the daemon asks the senders of further signals to
    /// retry later. Default: 1024.
    #[schemars(range(min = 1, max = 100_000))]
    max_waiters: Option<u32>,
}

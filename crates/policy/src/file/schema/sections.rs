//! The sections `[server]`, `[acceptor]`, `[ledger]` and `[lock]`.

use schemars::JsonSchema;

use super::DurationText;
use super::work::SizeValue;

/// The daemon.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct ServerTable {
    /// The address that the daemon listens on, such as "127.0.0.1:7070"; port 0 selects a free port. Default:
    /// 127.0.0.1:7070.
    listen: Option<String>,
    /// The URL of the store for work and locks: `sqlite:FILE` or `postgres://USER@HOST/DATABASE`. Default:
    /// the SQLite file in `data`.
    store: Option<String>,
    /// The directory of the SQLite file. Default: holdoff in the user's data directory.
    data: Option<String>,
    /// The largest number of concurrent HTTP steps. Default: 64.
    #[schemars(range(min = 1, max = 100_000))]
    concurrency: Option<u32>,
    /// The log filter, such as `debug` or `warn,holdoff_work=debug`. Default: info.
    log: Option<String>,
    /// The log format. Default: auto.
    log_format: Option<LogFormatWord>,
    /// The time after a request to shut down for which the daemon still accepts requests while it reports
    /// that it is not ready. At most 10m; default: 1s.
    grace: Option<DurationText>,
    /// The drain timeout: the time for which the daemon then waits for running steps before it requeues them.
    /// At most 1h; default: 20s.
    drain_timeout: Option<DurationText>,
    /// Whether every client needs an API token. On loopback no client does unless this is `required`; on any
    /// other address `required` is mandatory.
    tokens: Option<TokensWord>,
    /// The host names, besides those of loopback, that the daemon accepts where API tokens are required.
    /// Without it: any.
    #[schemars(length(max = 100))]
    hosts: Option<Vec<String>>,
    /// The rate limit of one API token, such as "1000/s", "50/m" or "10/h". Without it: no limit.
    #[schemars(regex(pattern = r"^\s*[0-9]+\s*/\s*[smh]\s*$"))]
    rate: Option<String>,
    /// The retention of the audit log. From 1d to 3650d; default: 365d.
    audit_keep: Option<DurationText>,
    /// Whether to serve plain HTTP on a public address, behind a proxy that terminates TLS. Default: false.
    insecure: Option<bool>,
    /// The prefix of every path, such as "/holdoff", for a proxy that also serves other applications.
    /// Default: nothing.
    #[schemars(regex(pattern = r"^/[A-Za-z0-9._/-]*$"))]
    prefix: Option<String>,
    /// The certificate and its key. The daemon reads them again when they change.
    tls: Option<TlsTable>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
enum LogFormatWord {
    /// Pretty on a terminal, JSON otherwise.
    Auto,
    /// Human-readable lines.
    Pretty,
    /// One JSON object a line.
    Json,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
enum TokensWord {
    /// Every client needs an API token.
    Required,
    /// No client needs an API token, and the daemon listens on loopback only.
    None,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct TlsTable {
    /// The PEM file of the certificate and its chain.
    cert: String,
    /// The PEM file of the private key.
    key: String,
}

/// An acceptor of councils in the daemon. The daemon runs it if `data` is set.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct AcceptorTable {
    /// The address that the acceptor listens on. Default: 127.0.0.1:4747.
    listen: Option<String>,
    /// The directory of the acceptor's key and store.
    data: Option<String>,
    /// The clients that may connect: a file with a key on each line, or `anyone`. On loopback the default is
    /// `anyone`; on any other address `allow` must be set.
    allow: Option<String>,
    /// The largest number of councils that the acceptor accepts. Default: 10000.
    #[schemars(range(min = 1, max = 1_000_000))]
    max_councils: Option<u32>,
    /// The largest size of one council. From 1MiB to 1GiB; default: 64MiB.
    max_council_bytes: Option<SizeValue>,
    /// The largest number of slots of one council that no snapshot covers. Default: 100000.
    #[schemars(range(min = 1000, max = 10_000_000))]
    max_council_slots: Option<u32>,
    /// The memory for the councils in use. At least 1MiB; default: 256MiB.
    max_memory: Option<SizeValue>,
    /// The largest number of open connections. Default: 1024.
    #[schemars(range(min = 1, max = 1_000_000))]
    max_connections: Option<u32>,
}

/// Ledgers in the daemon. The daemon runs them if `data` is set, or if the folder `ledger` of its own data
/// directory contains ledgers.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct LedgerTable {
    /// The address on which other nodes reach this node. Default: 127.0.0.1:4848.
    listen: Option<String>,
    /// The directory of the node's key and stores.
    data: Option<String>,
    /// The host and port that the node advertises to other nodes. Default: the value of `listen`.
    advertise: Option<String>,
    /// The display name of this node. Default: the first digits of its key.
    name: Option<String>,
    /// The time that a client waits for the result of a transaction, unless it sets its own. Default: 15s.
    result_timeout: Option<DurationText>,
    /// The time that a leader may serve reads without contacting its followers; not longer than `election`.
    /// Default: 1s, or `election` if that is shorter.
    lease: Option<DurationText>,
    /// The election timeout: a follower that has not heard from the leader for this time considers it dead.
    /// Default: 1s.
    election: Option<DurationText>,
    /// The interval of the leader's heartbeats; at most half of `election`. Default: 150ms.
    heartbeat: Option<DurationText>,
    /// The number of log entries that a node keeps to display and to send to other nodes. It must be the same
    /// on all nodes. Default: 4096.
    #[schemars(range(min = 16, max = 1_000_000))]
    kept: Option<u32>,
    /// The bytes of log entries beyond which a node keeps fewer than `kept`. It must be the same on all nodes. Default:
    /// 64MiB.
    kept_bytes: Option<SizeValue>,
    /// The largest state of a ledger in bytes: beyond it, transactions that add to the state fail. Default: 512MiB.
    max_state: Option<SizeValue>,
    /// The largest transaction in bytes. Default: 1MiB.
    max_transaction: Option<SizeValue>,
    /// The largest number of transactions and reads in flight. Default: 1024.
    #[schemars(range(min = 1, max = 100_000))]
    max_pending: Option<u32>,
    /// The gossip protocol that suggests a leader.
    gossip: Option<GossipTable>,
}

/// The timing of the gossip protocol.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct GossipTable {
    /// The gossip interval: in each round the leader increments its heartbeat and every node evaluates its
    /// own view. Default: 300ms.
    round: Option<DurationText>,
    /// The largest number of hops that an update travels. Default: 6.
    #[schemars(range(min = 1, max = 64))]
    diameter: Option<u32>,
    /// The time that an update takes from one node to the next. Default: 50ms.
    dissemination: Option<DurationText>,
    /// The largest difference of two clocks over one suspicion timeout. Default: 50ms.
    clock_tolerance: Option<DurationText>,
    /// The number of peers to which each node sends updates. Default: 3.
    #[schemars(range(min = 1, max = 32))]
    fan_out: Option<u32>,
    /// The time for which a claim must be stable before it becomes a hint. Default: the time that an update
    /// takes to reach all nodes.
    election: Option<DurationText>,
    /// The time that a new node listens before it votes. Default: two rounds.
    listening: Option<DurationText>,
    /// The suspicion timeout: the time for which a heartbeat counter may stand still. Default: four rounds,
    /// the time that an update takes to reach all nodes, and the clock tolerance.
    suspicion: Option<DurationText>,
    /// The time between a claim and the moment at which its leader must have a quorum. Default: twice the
    /// suspicion timeout.
    minimum_tenure: Option<DurationText>,
}

/// The defaults of locks. An acquisition may override them.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct LockTable {
    /// The lease of a lock. A holder that vanishes blocks other clients for this time. From 100ms to 1d;
    /// default: 30s.
    lease: Option<DurationText>,
    /// The time to wait for a lock, over all attempts. It should exceed the lease. Default: the limits of the
    /// named policy; without a named policy, twice the lease.
    wait: Option<DurationText>,
    /// The name of the policy that spaces the attempts. Default: the preset `lock`.
    policy: Option<String>,
    /// The largest number of waiters for one lock in one process. Default: 1024.
    #[schemars(range(min = 1, max = 100_000))]
    max_waiters: Option<u32>,
    /// The name of the daemon's ledger that stores its locks, so that all members of the ledger share them.
    /// Default: none; the daemon then stores locks beside the work.
    #[schemars(regex(pattern = "^[A-Za-z0-9_-]{1,64}$"))]
    ledger: Option<String>,
}

//! The `[server]` section: the daemon.

use schemars::JsonSchema;

use super::DurationText;

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
    patience: Option<DurationText>,
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

//! The section about the daemon: `[server]`.

use schemars::JsonSchema;

use super::DurationText;

/// The daemon.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct ServerTable {
    /// Where it listens, such as "127.0.0.1:7070"; port 0 means any that is free. Default: 127.0.0.1:7070.
    listen: Option<String>,
    /// Where work and locks are kept: `sqlite:FILE` or `postgres://USER@HOST/DATABASE`. Default: what `data` says.
    store: Option<String>,
    /// The directory of the SQLite file. Default: holdoff in the user's data directory.
    data: Option<String>,
    /// How many HTTP steps run at once. Default: 64.
    #[schemars(range(min = 1, max = 100_000))]
    concurrency: Option<u32>,
    /// What is logged, such as `debug` or `warn,holdoff_work=debug`. Default: info.
    log: Option<String>,
    /// How it is logged. Default: auto.
    log_format: Option<LogFormatWord>,
    /// How long a daemon that was told to end still takes requests in, while it says that it is not ready. At most 10m;
    /// default: 1s.
    grace: Option<DurationText>,
    /// How long it then waits for steps that run before it puts them back. At most 1h; default: 20s.
    patience: Option<DurationText>,
    /// Whether everybody needs an API token. On loopback nobody does unless it is `required`; elsewhere it must be.
    tokens: Option<TokensWord>,
    /// The names that are answered to where tokens are needed, besides loopback's. Without it: any.
    #[schemars(length(max = 100))]
    hosts: Option<Vec<String>>,
    /// How fast one token may ask, such as "1000/s", "50/m" or "10/h". Without it: no limit.
    #[schemars(regex(pattern = r"^\s*[0-9]+\s*/\s*[smh]\s*$"))]
    rate: Option<String>,
    /// How long is kept who did what. From 1d to 3650d; default: 365d.
    audit_keep: Option<DurationText>,
    /// Whether to serve without TLS where others can listen in: behind a proxy that has it. Default: false.
    insecure: Option<bool>,
    /// What stands before every path, where a proxy serves others beside the daemon, such as "/holdoff". Default: nothing.
    #[schemars(regex(pattern = r"^/[A-Za-z0-9._/-]*$"))]
    prefix: Option<String>,
    /// The certificate and its key, read again when they change.
    tls: Option<TlsTable>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
enum LogFormatWord {
    /// For people on a terminal, for programs otherwise.
    Auto,
    /// For people.
    Pretty,
    /// For programs: a JSON object on every line.
    Json,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
enum TokensWord {
    /// Everybody needs one.
    Required,
    /// Nobody needs one, and only loopback is listened on.
    None,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct TlsTable {
    /// The file of the certificate and of those that vouch for it, as PEM.
    cert: String,
    /// The file of its private key, as PEM.
    key: String,
}

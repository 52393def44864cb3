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

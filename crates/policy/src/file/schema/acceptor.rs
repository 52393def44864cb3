//! The `[acceptor]` section: an acceptor of councils.

use schemars::JsonSchema;

use super::work::SizeValue;

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

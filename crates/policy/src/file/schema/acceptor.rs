//! The section about an acceptor: `[acceptor]`.

use schemars::JsonSchema;

use super::work::SizeValue;

/// An acceptor of councils, in the daemon. It runs if `data` is set.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct AcceptorTable {
    /// Where it listens. Default: 127.0.0.1:4747.
    listen: Option<String>,
    /// The directory of its key and its store.
    data: Option<String>,
    /// Who may ask: a file with a key on each line, or `anyone`. On loopback anyone unless set; elsewhere it must be.
    allow: Option<String>,
    /// How many councils it takes in. Default: 10000.
    #[schemars(range(min = 1, max = 1_000_000))]
    max_councils: Option<u32>,
    /// How much each of them may have. From 1MiB to 1GiB; default: 64MiB.
    max_council_bytes: Option<SizeValue>,
    /// How many slots each of them may have that no snapshot stands for. Default: 100000.
    #[schemars(range(min = 1000, max = 10_000_000))]
    max_council_slots: Option<u32>,
    /// Memory for the councils in use. At least 1MiB; default: 256MiB.
    max_memory: Option<SizeValue>,
    /// How many may be connected. Default: 1024.
    #[schemars(range(min = 1, max = 1_000_000))]
    max_connections: Option<u32>,
}

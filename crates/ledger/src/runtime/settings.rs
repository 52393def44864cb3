//! The settings of a node.

mod written;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

pub use written::FileSettings;

use crate::ledger::Options;

/// The settings of all ledgers of one process.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// The directory of the key and the stores.
    pub data: PathBuf,
    /// The address at which the server listens.
    pub listen: SocketAddr,
    /// The address under which other nodes reach this one, as `host:port`. Default: the listening address.
    pub advertise: Option<String>,
    /// The display name of this node. Default: the first digits of its key.
    pub name: Option<String>,
    /// The timeouts and limits of the core.
    pub ledger: Options,
    /// The settings of gossip.
    pub gossip: holdoff_gossip::Settings,
    /// True if the stores are in memory only. A restarted node has lost its votes and returns under another id. For
    /// tests and measurements.
    pub in_memory: bool,
    /// The maximum size of the goal of a caller's transaction, in bytes.
    pub max_transaction_bytes: usize,
    /// The time limit of a call to another node.
    pub call_timeout: Duration,
}

impl Settings {
    /// Returns the default settings, with the key and the stores in this directory.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self {
            data: data.into(),
            listen: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 4848),
            advertise: None,
            name: None,
            ledger: Options::default(),
            gossip: holdoff_gossip::Settings::default(),
            in_memory: false,
            max_transaction_bytes: 1 << 20,
            call_timeout: Duration::from_secs(15),
        }
    }
}

//! How a node runs.

mod written;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

pub use written::Written;

use crate::ledger::Options;

/// How the ledgers of one process run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// The directory of the key and the stores.
    pub data: PathBuf,
    /// Where other nodes reach this one.
    pub listen: SocketAddr,
    /// The address that others are told, as `host:port`; unless set, where it listens.
    pub advertise: Option<String>,
    /// What people call this node; unless set, the first digits of its key.
    pub name: Option<String>,
    /// How patient it is, and how much it keeps.
    pub ledger: Options,
    /// Who should lead, by hearsay.
    pub gossip: holdoff_gossip::Settings,
    /// Whether it keeps everything in memory only: what it voted for is gone when it ends, so it comes back as somebody
    /// else. For tests and measurements.
    pub in_memory: bool,
    /// How long to wait for somebody else's answer.
    pub patience: Duration,
}

impl Settings {
    /// What is not said otherwise, with the key and the stores in this directory.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self {
            data: data.into(),
            listen: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 4848),
            advertise: None,
            name: None,
            ledger: Options::default(),
            gossip: holdoff_gossip::Settings::default(),
            in_memory: false,
            patience: Duration::from_secs(15),
        }
    }
}

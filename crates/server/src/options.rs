//! Options of a daemon, and the function that reads its policy file again.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use holdoff_policy::PolicySet;
use holdoff_work::Settings;

use crate::StoreUrl;

/// Options of a daemon.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The listen address: loopback, unless tokens are required. Port 0 selects a free port.
    pub listen: SocketAddr,
    /// The store of the work.
    pub store: StoreUrl,
    /// The policies of this daemon's own file. All daemons on a store use the version that is active there; see
    /// [`Work::join`](holdoff_work::Work::join).
    pub policies: PolicySet,
    /// The file's settings of durable work.
    pub settings: Settings,
    /// The file's settings of locks.
    pub locking: holdoff_lock::Settings,
    /// The file's settings of the server and of access to it.
    pub server: crate::Settings,
    /// The file's settings of an acceptor of councils. The acceptor runs if a directory is set.
    pub acceptor: holdoff_council::acceptor::Settings,
    /// The settings of this daemon's node of ledgers, if there is one.
    pub ledger: Option<Box<holdoff_ledger::runtime::Settings>>,
    /// Locks in another store. By default they are in the store of the work.
    pub locks: Option<holdoff_lock::Locks>,
    /// The number of HTTP steps that run at once.
    pub concurrency: usize,
    /// The drain timeout: how long a shutdown waits for running steps. Steps that do not end in time are returned to
    /// the queue, and use up no attempt.
    pub drain_timeout: Duration,
    /// How long a daemon still accepts requests after `SIGTERM`, while it reports that it is not ready. In this time a
    /// load balancer notices.
    pub grace: Duration,
    /// How to read the policy file again, on `SIGHUP`.
    pub reload: Option<Reload>,
}

impl Options {
    /// The default of `listen`.
    pub const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7070);

    /// The default of `concurrency`.
    pub const CONCURRENCY: usize = 64;

    /// The default of `drain_timeout`.
    pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);

    /// The default of `grace`.
    pub const GRACE: Duration = Duration::from_secs(1);

    /// Creates options for work in this store, with the preset policies and the defaults of everything else.
    pub fn new(store: StoreUrl) -> Self {
        Self {
            listen: Self::LISTEN,
            store,
            policies: PolicySet::default(),
            settings: Settings::default(),
            locking: holdoff_lock::Settings::default(),
            server: crate::Settings::default(),
            acceptor: holdoff_council::acceptor::Settings::default(),
            ledger: None,
            locks: None,
            concurrency: Self::CONCURRENCY,
            drain_timeout: Self::DRAIN_TIMEOUT,
            grace: Self::GRACE,
            reload: None,
        }
    }
}

type ReadPolicies = dyn Fn() -> Result<PolicySet, String> + Send + Sync;

/// A function that reads and validates the policy file again, or returns the problems.
#[derive(Clone)]
pub struct Reload(Arc<ReadPolicies>);

impl Reload {
    /// Creates it from this function.
    pub fn new(read: impl Fn() -> Result<PolicySet, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    pub(crate) fn read(&self) -> Result<PolicySet, String> {
        (self.0)()
    }
}

impl fmt::Debug for Reload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reload")
    }
}

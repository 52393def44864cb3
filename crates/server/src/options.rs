//! What a daemon is told.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use holdoff_policy::PolicySet;
use holdoff_work::Settings;

use crate::{Place, Reload};

/// What a daemon is told.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Where it listens: a loopback address, unless everybody needs a token. Port 0 means any that is free.
    pub listen: SocketAddr,
    /// Where work is kept.
    pub place: Place,
    /// The policies of this daemon's own file. All daemons on a store go by the version that is active there; see
    /// [`Work::join`](holdoff_work::Work::join).
    pub policies: PolicySet,
    /// What the file says about durable work.
    pub settings: Settings,
    /// What the file says about locks.
    pub locking: holdoff_lock::Settings,
    /// What the file says about who may come in.
    pub server: crate::Settings,
    /// What the file says about an acceptor of councils: it runs if there is a directory for it.
    pub acceptor: holdoff_council::acceptor::Settings,
    /// How this daemon's node of ledgers runs, if there is one.
    pub ledger: Option<Box<holdoff_ledger::runtime::Settings>>,
    /// Locks that are kept elsewhere; unless given, they are kept where the work is.
    pub locks: Option<holdoff_lock::Locks>,
    /// How many HTTP steps run at once.
    pub concurrency: usize,
    /// How long a shutdown waits for steps that run. What does not end in time is put back, and burns no attempt.
    pub patience: Duration,
    /// How long a daemon that was told to end (`SIGTERM`) still takes requests in, while it says that it is not ready:
    /// so that whoever balances between daemons sees it in time.
    pub grace: Duration,
    /// How to read the policy file again, on `SIGHUP`.
    pub reload: Option<Reload>,
}

impl Options {
    /// Where it listens unless told otherwise.
    pub const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7070);

    /// How many HTTP steps run at once unless told otherwise.
    pub const CONCURRENCY: usize = 64;

    /// How long a shutdown waits for steps that run unless told otherwise.
    pub const PATIENCE: Duration = Duration::from_secs(20);

    /// How long a daemon that was told to end still takes requests in unless told otherwise.
    pub const GRACE: Duration = Duration::from_secs(1);

    /// Work kept here, the presets for policies, and everything else as it is by default.
    pub fn new(place: Place) -> Self {
        Self {
            listen: Self::LISTEN,
            place,
            policies: PolicySet::default(),
            settings: Settings::default(),
            locking: holdoff_lock::Settings::default(),
            server: crate::Settings::default(),
            acceptor: holdoff_council::acceptor::Settings::default(),
            ledger: None,
            locks: None,
            concurrency: Self::CONCURRENCY,
            patience: Self::PATIENCE,
            grace: Self::GRACE,
            reload: None,
        }
    }
}

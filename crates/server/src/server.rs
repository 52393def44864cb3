//! A running daemon: its start, the rules for its listen address, its background cleanup, and its shutdown.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use holdoff_council::acceptor::AcceptorService;
use holdoff_ledger::runtime::{DefaultMachine, Host};
use holdoff_work::{Work, Worker};
use tokio::net::TcpSocket;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::access::Auth;
use crate::app::App;
use crate::ledgers::Ledgers;
use crate::listen::Prefix;
use crate::locking::Locking;
use crate::tls::{Tls, key_warning};
use crate::token_store::TokenStore;
use crate::{Error, Options, Reload, Settings, StoreUrl, TlsFiles, api, events, listen, metrics};

/// A running daemon. Dropping it stops it without waiting: its running steps are rescued when their leases have
/// expired.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    has_tls: bool,
    store: String,
    locking: Locking,
    work: Work,
    token_store: TokenStore,
    worker: Worker,
    acceptor: Option<AcceptorService>,
    ledger: Option<Host<DefaultMachine>>,
    shutting_down: CancellationToken,
    stopping: CancellationToken,
    timeouts: ShutdownTimeouts,
    reload: Option<Reload>,
    tasks: Vec<JoinHandle<()>>,
}

/// The timeouts of a shutdown.
#[derive(Clone, Copy, Debug)]
struct ShutdownTimeouts {
    drain_timeout: Duration,
    grace: Duration,
}

impl Server {
    /// Starts a daemon. When this returns, it serves requests.
    pub async fn start(options: Options) -> Result<Self, Error> {
        let Options {
            listen: address,
            store,
            policies,
            mut settings,
            locking,
            server,
            acceptor,
            ledger,
            locks,
            ..
        } = options;
        let (concurrency, drain_timeout, grace) = (options.concurrency, options.drain_timeout, options.grace);
        let reload = options.reload;
        check_address(address, &server)?;
        // With tokens, the submitters of work are others than the owner of the network.
        settings.http.deny_private.get_or_insert(server.require_tokens);
        let tls = server.tls.clone().map(Tls::open).transpose()?;
        // The port comes first: a second daemon started by mistake fails before it touches the store. No client can
        // connect to it before the last reason for a refusal has been checked.
        let listen_error = |source| Error::Listen { address, source };
        let socket = bind(address).map_err(listen_error)?;
        let address = socket.local_addr().map_err(listen_error)?;
        store.create()?;
        // The recorder comes before the work, because a metric belongs to the recorder that was installed when it was
        // first used.
        let rendered = metrics::install();
        let store_error = |source| Error::Store { store: store.clone(), source };
        let deployed_by_start = deployed_by("start");
        let open = Box::pin(Work::join(store.as_str(), policies, settings, &deployed_by_start));
        let work = open.await.map_err(store_error)?;
        warn_about_files(&store, server.tls.as_ref());
        let ledger = start_ledger(ledger).await?;
        let ledgers = ledger.as_ref().map(Ledgers::new).map(Arc::new);
        let locking = Box::pin(Locking::open(&store, &work, locks, locking, ledgers.as_ref())).await?;
        let token_store = TokenStore::open(store.as_str()).await?;
        check_admin(address, &store, &server, &token_store).await?;
        let listener = socket.listen(BACKLOG).map_err(listen_error)?;
        let start = Box::pin(work.worker().http().concurrency(concurrency).start());
        let worker = start.await.map_err(store_error)?;
        let acceptor = match &acceptor.data {
            Some(directory) => Some(Box::pin(AcceptorService::start(directory, &acceptor)).await?),
            None => None,
        };

        let stopping = CancellationToken::new();
        let auth = Arc::new(Auth::new(token_store.clone(), &server));
        let store_name = store.to_string();
        let app = App::new(
            work.clone(),
            locking.clone(),
            token_store.clone(),
            rendered.clone(),
            store_name.clone(),
            worker.broken(),
            stopping.clone(),
        )
        .with_address(&server.prefix, tls.is_some())
        .with_nodes(acceptor.as_ref().map(AcceptorService::inspector), ledgers);
        let shutting_down = app.shutting_down.clone();
        let mut tasks = vec![tokio::spawn(events::watch(app.clone()))];
        let tls = tls.map(|(tls, read)| {
            let tls = Arc::new(tls);
            tasks.push(tokio::spawn(Arc::clone(&tls).watch(read, stopping.clone())));
            tls
        });
        let has_tls = tls.is_some();
        let router = api::router(app, auth);
        tasks.push(tokio::spawn(listen::accept(
            listener,
            router,
            Prefix::new(&server.prefix),
            tls,
            stopping.clone(),
        )));
        tasks.push(tokio::spawn(prune_locks(locking.clone(), stopping.clone())));
        tasks.extend(locking.claims().into_iter().flat_map(|claims| claims.start(&stopping)));
        tasks.push(tokio::spawn(prune_audit_log(token_store.clone(), server.audit_keep, stopping.clone())));
        tasks.extend(rendered.map(|handle| tokio::spawn(metrics::run_upkeep(handle, stopping.clone()))));
        let follow = {
            let (work, stopping) = (work.clone(), stopping.clone());
            async move { stopping.run_until_cancelled(work.follow_policies()).await }
        };
        tasks.push(tokio::spawn(async {
            let _ = follow.await;
        }));
        let timeouts = ShutdownTimeouts { drain_timeout, grace };
        Ok(Self {
            address,
            has_tls,
            store: store_name,
            locking,
            work,
            token_store,
            worker,
            acceptor,
            ledger,
            shutting_down,
            stopping,
            timeouts,
            reload,
            tasks,
        })
    }

    /// Returns the listen address.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the listen address as a URL.
    pub fn url(&self) -> String {
        let scheme = if self.has_tls { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Returns the store of the work, without its password.
    pub fn store(&self) -> &str {
        &self.store
    }

    /// Returns the ledger that keeps the locks; without one they are in the store of the work.
    pub fn locks_ledger(&self) -> Option<&str> {
        self.locking.ledger()
    }

    /// Returns the acceptor of councils, if there is one.
    pub const fn acceptor(&self) -> Option<&AcceptorService> {
        self.acceptor.as_ref()
    }

    /// Returns the node of ledgers, if there is one.
    pub const fn ledger(&self) -> Option<&Host<DefaultMachine>> {
        self.ledger.as_ref()
    }

    /// Returns the durable work that it serves.
    pub const fn work(&self) -> &Work {
        &self.work
    }

    /// Returns its tokens and audit log.
    pub const fn token_store(&self) -> &TokenStore {
        &self.token_store
    }

    /// Reads the policy file again and deploys it to every node on the store. If the file is not usable, the policies
    /// stay as they are, and the log has the reason.
    pub async fn reload(&self) {
        let Some(reload) = &self.reload else {
            tracing::warn!("ignored SIGHUP: the daemon was started without a policy file");
            return;
        };
        let deployed = match reload.read() {
            Ok(set) => {
                self.work.deploy_own(set, &deployed_by("SIGHUP")).await.map_err(|error| error.to_string())
            }
            Err(why) => Err(why),
        };
        match deployed {
            Ok(deployed) => {
                tracing::info!(version = %deployed.id, "deployed the policy file");
            }
            Err(why) => {
                tracing::error!(reason = why, "failed to deploy the policy file; the policies are unchanged");
            }
        }
    }

    /// Reports that it is not ready any more, and serves requests for the grace period. A load balancer routes new
    /// requests elsewhere.
    pub async fn begin_shutdown(&self) {
        self.shutting_down.cancel();
        tokio::time::sleep(self.timeouts.grace).await;
    }

    /// Stops gracefully: accepts no more requests, finishes those in progress, waits up to the drain timeout for
    /// running steps, and returns the others to the queue. They use up no attempt.
    pub async fn shutdown(mut self) {
        self.shutting_down.cancel();
        self.stopping.cancel();
        let tasks = std::mem::take(&mut self.tasks);
        let answered = async {
            for task in tasks {
                // A task that panicked has nothing left to finish.
                let _ = task.await;
            }
        };
        let (acceptor, grace) = (self.acceptor.take(), self.timeouts.grace);
        let decided = async {
            if let Some(acceptor) = acceptor {
                acceptor.stop(grace).await;
            }
        };
        let ledger = self.ledger.take();
        let answered = async {
            answered.await;
            // Requests in progress may need the ledger, so it stops after them.
            if let Some(ledger) = ledger {
                ledger.stop(grace).await;
            }
        };
        tokio::join!(self.worker.shutdown_within(self.timeouts.drain_timeout), answered, decided);
    }
}

/// Logs the ways in which other users of the machine can read or replace the store or the TLS key.
fn warn_about_files(store: &StoreUrl, tls: Option<&TlsFiles>) {
    for warning in store.warnings().into_iter().chain(tls.and_then(key_warning)) {
        tracing::warn!("{warning}");
    }
}

/// The number of connections that the system accepts ahead of the daemon.
const BACKLOG: u32 = 1024;

/// Reserves the address. Clients cannot connect yet.
fn bind(address: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restarted daemon does not wait for the closed connections of the previous one.
    #[cfg(not(windows))]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Starts the node of ledgers, if it has settings, and logs settings that contradict each other.
async fn start_ledger(
    settings: Option<Box<holdoff_ledger::runtime::Settings>>,
) -> Result<Option<Host<DefaultMachine>>, Error> {
    let Some(settings) = settings else { return Ok(None) };
    for finding in settings.gossip.lint() {
        tracing::warn!("[ledger.gossip]: {finding}");
    }
    Ok(Some(Box::pin(Host::start(*settings)).await?))
}

/// Returns the author to record for a deployment by this daemon.
fn deployed_by(occasion: &str) -> String {
    format!("{occasion} of the daemon at {}", holdoff_work::process_name())
}

/// Requires tokens on an address beyond loopback, and TLS unless the settings say that a proxy terminates it.
fn check_address(address: SocketAddr, settings: &Settings) -> Result<(), Error> {
    if address.ip().is_loopback() {
        return Ok(());
    }
    if !settings.require_tokens {
        return Err(Error::NotLoopback(address));
    }
    if settings.tls.is_none() && !settings.insecure {
        return Err(Error::Plain(address));
    }
    Ok(())
}

/// Requires that a token of scope `admin` exists if tokens are required.
async fn check_admin(
    address: SocketAddr,
    store: &StoreUrl,
    settings: &Settings,
    token_store: &TokenStore,
) -> Result<(), Error> {
    if !settings.require_tokens || token_store.has_admin().await? {
        return Ok(());
    }
    if address.ip().is_loopback() {
        tracing::warn!(
            "started without an API token of scope admin; create one with `holdoff token create --name ME --scope admin`"
        );
        return Ok(());
    }
    Err(Error::NoAdmin { address, store: store.clone() })
}

/// The interval between cleanups.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(60);
/// How long a lock must be idle, without a holder or a request, before it is pruned.
const IDLE_FOR: Duration = Duration::from_secs(24 * 60 * 60);
/// The maximum number of rows in one transaction, so that other transactions do not wait long.
const CLEANUP_BATCH: u32 = 500;

/// Prunes idle locks until the daemon stops. Later tokens are above those of pruned locks.
async fn prune_locks(locking: Locking, stopping: CancellationToken) {
    while stopping.run_until_cancelled(tokio::time::sleep(CLEANUP_INTERVAL)).await.is_some() {
        // Before the locks are available, there are none to prune.
        let Ok(locks) = locking.locks().await else { continue };
        let all = async {
            while locks.prune(IDLE_FOR, CLEANUP_BATCH).await? >= u64::from(CLEANUP_BATCH) {}
            Ok::<_, holdoff_lock::Error>(())
        };
        if let Some(Err(error)) = stopping.run_until_cancelled(all).await {
            tracing::warn!(%error, "failed to prune idle locks");
        }
    }
}

/// Deletes entries of the audit log that are older than `older`, until the daemon stops.
async fn prune_audit_log(token_store: TokenStore, older: Duration, stopping: CancellationToken) {
    while stopping.run_until_cancelled(tokio::time::sleep(CLEANUP_INTERVAL)).await.is_some() {
        let all = async {
            while token_store.prune(older, CLEANUP_BATCH).await? >= u64::from(CLEANUP_BATCH) {}
            Ok::<_, crate::Error>(())
        };
        if let Some(Err(error)) = stopping.run_until_cancelled(all).await {
            tracing::warn!(%error, "failed to prune the audit log");
        }
    }
}

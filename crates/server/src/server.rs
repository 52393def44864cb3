//! A running daemon.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use holdoff_council::acceptor::AcceptorService;
use holdoff_ledger::runtime::{Books, Host};
use holdoff_work::{Work, Worker};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::access::Door;
use crate::app::App;
use crate::keep::Keep;
use crate::ledgers::Ledgers;
use crate::locking::Locking;
use crate::prefix::Prefix;
use crate::tls::Tls;
use crate::{Error, Options, Reload, api, events, listen, metrics, reach, tidy};

/// A running daemon. Dropping it stops it without waiting: its running steps are rescued when their leases have
/// expired.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    is_private: bool,
    place: String,
    locking: Locking,
    work: Work,
    keep: Keep,
    worker: Worker,
    acceptor: Option<AcceptorService>,
    ledger: Option<Host<Books>>,
    retiring: CancellationToken,
    stopping: CancellationToken,
    timing: Timing,
    reload: Option<Reload>,
    tasks: Vec<JoinHandle<()>>,
}

/// The timeouts of a shutdown.
#[derive(Clone, Copy, Debug)]
struct Timing {
    patience: Duration,
    grace: Duration,
}

impl Server {
    /// Starts a daemon. When this returns, it serves requests.
    pub async fn start(options: Options) -> Result<Self, Error> {
        let Options {
            listen: address,
            place,
            policies,
            settings,
            locking,
            server,
            acceptor,
            ledger,
            locks,
            ..
        } = options;
        let (concurrency, patience, grace) = (options.concurrency, options.patience, options.grace);
        let reload = options.reload;
        reach::check(address, &server)?;
        let tls = server.tls.clone().map(Tls::open).transpose()?;
        // The port comes first: a second daemon started by mistake fails before it touches the store.
        let cannot_listen = |source| Error::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(cannot_listen)?;
        let address = listener.local_addr().map_err(cannot_listen)?;
        place.make()?;
        // The recorder comes before the work, because a metric belongs to the recorder that was installed when it was
        // first used.
        let rendered = metrics::install();
        let cannot_keep = |source| Error::Store { place: place.clone(), source };
        let starter = who("start");
        let open = Box::pin(Work::join(place.url(), policies, settings, &starter));
        let work = open.await.map_err(cannot_keep)?;
        let ledger = start_ledger(ledger).await?;
        let ledgers = ledger.as_ref().map(Ledgers::new).map(Arc::new);
        let locking = Box::pin(Locking::open(&place, &work, locks, locking, ledgers.as_ref())).await?;
        let keep = Keep::open(place.url()).await?;
        reach::check_admin(address, &place, &server, &keep).await?;
        let start = Box::pin(work.worker().http().concurrency(concurrency).start());
        let worker = start.await.map_err(cannot_keep)?;
        let acceptor = match &acceptor.data {
            Some(directory) => Some(Box::pin(AcceptorService::start(directory, &acceptor)).await?),
            None => None,
        };

        let stopping = CancellationToken::new();
        let door = Arc::new(Door::new(keep.clone(), &server));
        let shown = place.to_string();
        let app = App::new(
            work.clone(),
            locking.clone(),
            keep.clone(),
            rendered.clone(),
            shown,
            worker.broken(),
            stopping.clone(),
        )
        .reached(&server.prefix, tls.is_some())
        .beside(acceptor.as_ref().map(AcceptorService::lookout), ledgers);
        let retiring = app.retiring.clone();
        let mut tasks = vec![tokio::spawn(events::watch(app.clone()))];
        let tls = tls.map(|(tls, read)| {
            let tls = Arc::new(tls);
            tasks.push(tokio::spawn(Arc::clone(&tls).watch(read, stopping.clone())));
            tls
        });
        let is_private = tls.is_some();
        let router = api::router(app, door);
        tasks.push(tokio::spawn(listen::accept(
            listener,
            router,
            Prefix::new(&server.prefix),
            tls,
            stopping.clone(),
        )));
        tasks.push(tokio::spawn(tidy::forget_idle(locking.clone(), stopping.clone())));
        tasks.extend(locking.claims().into_iter().flat_map(|claims| claims.start(&stopping)));
        tasks.push(tokio::spawn(tidy::forget_deeds(keep.clone(), server.audit_keep, stopping.clone())));
        tasks.extend(rendered.map(|handle| tokio::spawn(metrics::keep_small(handle, stopping.clone()))));
        let follow = {
            let (work, stopping) = (work.clone(), stopping.clone());
            async move { stopping.run_until_cancelled(work.follow()).await }
        };
        tasks.push(tokio::spawn(async {
            let _ = follow.await;
        }));
        let place = place.to_string();
        let timing = Timing { patience, grace };
        Ok(Self {
            address,
            is_private,
            place,
            locking,
            work,
            keep,
            worker,
            acceptor,
            ledger,
            retiring,
            stopping,
            timing,
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
        let scheme = if self.is_private { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Returns the store of the work, without its password.
    pub fn place(&self) -> &str {
        &self.place
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
    pub const fn ledger(&self) -> Option<&Host<Books>> {
        self.ledger.as_ref()
    }

    /// Returns the durable work that it serves.
    pub const fn work(&self) -> &Work {
        &self.work
    }

    /// Returns its tokens and audit log.
    pub const fn keep(&self) -> &Keep {
        &self.keep
    }

    /// Reads the policy file again and deploys it to every node on the store. If the file is not usable, the policies
    /// stay as they are, and the log has the reason.
    pub async fn reload(&self) {
        let Some(reload) = &self.reload else {
            tracing::warn!("there is no policy file to read again; the policies stay as they are");
            return;
        };
        let published = match reload.read() {
            Ok(set) => self.work.publish_own(set, &who("SIGHUP")).await.map_err(|error| error.to_string()),
            Err(why) => Err(why),
        };
        match published {
            Ok(published) => {
                tracing::info!(version = %published.id, "the policy file was read again and is in force");
            }
            Err(why) => tracing::error!("the policies stay as they are: {why}"),
        }
    }

    /// Reports that it is not ready any more, and serves requests for the grace period. A load balancer routes new
    /// requests elsewhere.
    pub async fn retire(&self) {
        self.retiring.cancel();
        tokio::time::sleep(self.timing.grace).await;
    }

    /// Stops gracefully: accepts no more requests, finishes those in progress, waits up to the drain timeout for
    /// running steps, and returns the others to the queue. They use up no attempt.
    pub async fn shutdown(mut self) {
        self.retiring.cancel();
        self.stopping.cancel();
        let tasks = std::mem::take(&mut self.tasks);
        let answered = async {
            for task in tasks {
                // A task that panicked has nothing left to finish.
                let _ = task.await;
            }
        };
        let (acceptor, grace) = (self.acceptor.take(), self.timing.grace);
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
        tokio::join!(self.worker.shutdown_within(self.timing.patience), answered, decided);
    }
}

/// Starts the node of ledgers, if it has settings, and logs settings that contradict each other.
async fn start_ledger(
    settings: Option<Box<holdoff_ledger::runtime::Settings>>,
) -> Result<Option<Host<Books>>, Error> {
    let Some(settings) = settings else { return Ok(None) };
    for finding in settings.gossip.lint() {
        tracing::warn!("[ledger.gossip]: {finding}");
    }
    Ok(Some(Box::pin(Host::start(*settings)).await?))
}

/// Returns the author to record for a deployment by this daemon.
fn who(occasion: &str) -> String {
    format!("{occasion} of the daemon at {}", holdoff_work::this_process())
}

//! A running daemon.

use std::net::SocketAddr;
use std::time::Duration;

use holdoff_lock::Locks;
use holdoff_work::{Work, Worker};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::{Error, Options, Reload, api, events, listen, metrics, tidy};

/// A running daemon. Dropping it stops it without waiting: what it was doing is rescued when the leases are over.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    place: String,
    work: Work,
    worker: Worker,
    retiring: CancellationToken,
    stopping: CancellationToken,
    patience: Duration,
    grace: Duration,
    reload: Option<Reload>,
    tasks: Vec<JoinHandle<()>>,
}

impl Server {
    /// Starts it. When this returns, it answers.
    pub async fn start(options: Options) -> Result<Self, Error> {
        let Options { listen: address, place, policies, settings, locking, locks, concurrency, .. } = options;
        let (patience, grace, reload) = (options.patience, options.grace, options.reload);
        if !address.ip().is_loopback() {
            return Err(Error::NotLoopback(address));
        }
        // The port first: whoever starts a second daemon by mistake should hear of it before anything is touched.
        let cannot_listen = |source| Error::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(cannot_listen)?;
        let address = listener.local_addr().map_err(cannot_listen)?;
        place.make()?;
        // Before the work: what is counted goes to the recorder that was there when it was first counted.
        let rendered = metrics::install();
        let cannot_keep = |source| Error::Store { place: place.clone(), source };
        let starter = who("start");
        let open = Box::pin(Work::join(place.url(), policies, settings, &starter));
        let work = open.await.map_err(cannot_keep)?;
        let locks = match locks {
            Some(locks) => locks.with_settings(locking),
            None => open_locks(place.url()).await.and_then(|locks| locks.with_settings(locking)),
        };
        let locks = locks.map_err(|source| Error::Locks { place: place.clone(), source })?;
        let start = Box::pin(work.worker().http().concurrency(concurrency).start());
        let worker = start.await.map_err(cannot_keep)?;

        let stopping = CancellationToken::new();
        let app =
            App::new(work.clone(), locks.clone(), rendered.clone(), place.to_string(), stopping.clone());
        let retiring = app.retiring.clone();
        let mut tasks = vec![tokio::spawn(events::watch(app.clone()))];
        tasks.push(tokio::spawn(listen::accept(listener, api::router(app), stopping.clone())));
        tasks.push(tokio::spawn(tidy::forget_idle(locks, stopping.clone())));
        tasks.extend(rendered.map(|handle| tokio::spawn(metrics::keep_small(handle, stopping.clone()))));
        let follow = {
            let (work, stopping) = (work.clone(), stopping.clone());
            async move { stopping.run_until_cancelled(work.follow()).await }
        };
        tasks.push(tokio::spawn(async {
            let _ = follow.await;
        }));
        let place = place.to_string();
        Ok(Self { address, place, work, worker, retiring, stopping, patience, grace, reload, tasks })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it listens, for a browser.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where work is kept, as it may be shown.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The durable work it serves.
    pub const fn work(&self) -> &Work {
        &self.work
    }

    /// Reads the policy file again and publishes it for every node on the store. If it cannot be used, the policies
    /// stay as they are, and the log says why.
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

    /// Says that it is not ready any more, and goes on answering for its grace: whoever balances between daemons
    /// sends what comes elsewhere.
    pub async fn retire(&self) {
        self.retiring.cancel();
        tokio::time::sleep(self.grace).await;
    }

    /// Stops gracefully: takes in no more, answers those who have asked, waits a while for steps that run, and puts
    /// back what does not end. No attempt is burnt.
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
        tokio::join!(self.worker.shutdown_within(self.patience), answered);
    }
}

/// Who publishes policies, for people.
fn who(occasion: &str) -> String {
    format!("{occasion} of the daemon at {}", holdoff_work::this_process())
}

/// Locks where the work is. Work in memory has no address that anybody else could open.
async fn open_locks(url: &str) -> Result<Locks, holdoff_lock::Error> {
    if url.starts_with("sqlite::memory:") { Ok(Locks::memory()) } else { Locks::open(url).await }
}

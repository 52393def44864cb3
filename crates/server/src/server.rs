//! A running daemon.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use holdoff_lock::Locks;
use holdoff_work::{Work, Worker};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::access::Door;
use crate::app::App;
use crate::keep::Keep;
use crate::tls::Tls;
use crate::{Error, Options, api, listen, metrics, reach, tidy};

/// A running daemon. Dropping it stops it without waiting: what it was doing is rescued when the leases are over.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    is_private: bool,
    place: String,
    keep: Keep,
    worker: Worker,
    stopping: CancellationToken,
    patience: Duration,
    tasks: Vec<JoinHandle<()>>,
}

impl Server {
    /// Starts it. When this returns, it answers.
    pub async fn start(options: Options) -> Result<Self, Error> {
        let Options {
            listen: address,
            place,
            policies,
            settings,
            locking,
            server,
            locks,
            concurrency,
            patience,
        } = options;
        reach::check(address, &server)?;
        let tls = server.tls.clone().map(Tls::open).transpose()?;
        // The port first: whoever starts a second daemon by mistake should hear of it before anything is touched.
        let cannot_listen = |source| Error::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(cannot_listen)?;
        let address = listener.local_addr().map_err(cannot_listen)?;
        place.make()?;
        // Before the work: what is counted goes to the recorder that was there when it was first counted.
        let rendered = metrics::install();
        let cannot_keep = |source| Error::Store { place: place.clone(), source };
        let open = Box::pin(Work::open_with(place.url(), policies, settings));
        let work = open.await.map_err(cannot_keep)?;
        let locks = match locks {
            Some(locks) => locks.with_settings(locking),
            None => open_locks(place.url()).await.and_then(|locks| locks.with_settings(locking)),
        };
        let locks = locks.map_err(|source| Error::Locks { place: place.clone(), source })?;
        let keep = Keep::open(place.url()).await?;
        reach::check_admin(address, &place, &server, &keep).await?;
        let start = Box::pin(work.worker().http().concurrency(concurrency).start());
        let worker = start.await.map_err(cannot_keep)?;

        let stopping = CancellationToken::new();
        let door = Arc::new(Door::new(keep.clone(), &server));
        let app = App::new(work, locks.clone(), keep.clone(), rendered.clone(), place.to_string());
        let mut tasks = Vec::new();
        let tls = tls.map(|(tls, read)| {
            let tls = Arc::new(tls);
            tasks.push(tokio::spawn(Arc::clone(&tls).watch(read, stopping.clone())));
            tls
        });
        let is_private = tls.is_some();
        let router = api::router(app, door);
        tasks.push(tokio::spawn(listen::accept(listener, router, tls, stopping.clone())));
        tasks.push(tokio::spawn(tidy::forget_idle(locks, stopping.clone())));
        tasks.push(tokio::spawn(tidy::forget_deeds(keep.clone(), server.audit_keep, stopping.clone())));
        tasks.extend(rendered.map(|handle| tokio::spawn(metrics::keep_small(handle, stopping.clone()))));
        Ok(Self { address, is_private, place: place.to_string(), keep, worker, stopping, patience, tasks })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it listens, for a browser.
    pub fn url(&self) -> String {
        let scheme = if self.is_private { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Where work is kept, as it may be shown.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Its tokens, and who did what.
    pub const fn keep(&self) -> &Keep {
        &self.keep
    }

    /// Stops gracefully: takes in no more, answers those who have asked, waits a while for steps that run, and puts
    /// back what does not end. No attempt is burnt.
    pub async fn shutdown(mut self) {
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

/// Locks where the work is. Work in memory has no address that anybody else could open.
async fn open_locks(url: &str) -> Result<Locks, holdoff_lock::Error> {
    if url.starts_with("sqlite::memory:") { Ok(Locks::memory()) } else { Locks::open(url).await }
}

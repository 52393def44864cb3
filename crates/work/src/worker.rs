//! A worker: claims steps that it can handle, runs them, and reports the results.
//!
//! ```text
//!   fetch ──claims──▶ run ──reports──▶ finish ──▶ the store
//!     ▲                                   │
//!     └────────── a slot is free ─────────┘     only when the report is durable
//! ```
//!
//! `fetch` claims as many steps as there are free slots. `finish` writes all reports that arrived while it wrote the
//! previous batch. Batches therefore grow with the load, and no step waits for a batch to fill.

mod handler;
mod lease;
mod maintain;
mod run;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use handler::Handler;
pub use handler::{Completion, FromPayload, IntoOutput};
pub(crate) use lease::StepLease;

use crate::notify::Notifier;
use crate::registration::WorkerRegistration;
use crate::stats::WorkerLoad;
use crate::store::{Result, Selection};
use crate::work::Work;
use crate::{Context, Fault};

/// The number of slots of a worker that sets none.
const CONCURRENCY: usize = 16;

/// The default drain timeout: how long a shutdown waits for running steps.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);

/// The builder of a worker.
#[must_use = "it does nothing until it is started"]
#[derive(Debug)]
pub struct WorkerBuilder {
    work: Work,
    name: Option<String>,
    handlers: HashMap<String, Handler>,
    timeouts: HashMap<String, Duration>,
    namespaces: Vec<String>,
    queues: Vec<String>,
    concurrency: usize,
    http: bool,
    maintains: bool,
}

/// A running worker. Dropping it stops it without waiting: its steps are rescued when their leases expire.
#[derive(Debug)]
pub struct Worker {
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

/// The state that the parts of a worker share.
#[derive(Debug)]
struct Shared {
    work: Work,
    registration: WorkerRegistration,
    selection: Selection,
    handlers: HashMap<String, Handler>,
    /// The time limits of the handlers' runs, by operation.
    timeouts: HashMap<String, Duration>,
    #[cfg(feature = "http")]
    http: Option<crate::HttpRunner>,
    notifier: Notifier,
    concurrency: usize,
    leases: lease::HeldLeases,
    /// Cancelled when the worker claims no more steps.
    stopping: CancellationToken,
    /// Cancelled when the last claim has ended.
    claims_ended: CancellationToken,
    /// Cancelled when the worker stops the steps that still run.
    stopped: CancellationToken,
    running: TaskTracker,
}

impl WorkerLoad for Shared {
    fn running(&self) -> usize {
        self.leases.len()
    }

    fn slots(&self) -> usize {
        self.concurrency
    }
}

impl WorkerBuilder {
    pub(crate) fn new(work: Work) -> Self {
        Self {
            work,
            name: None,
            handlers: HashMap::new(),
            timeouts: HashMap::new(),
            namespaces: Vec::new(),
            queues: Vec::new(),
            concurrency: CONCURRENCY,
            http: false,
            maintains: true,
        }
    }

    /// Runs steps of this operation. The handler's argument is read from the payload, and its result is the step's
    /// output.
    pub fn handle<P, O, F, Fut>(mut self, operation: impl Into<String>, handler: F) -> Self
    where
        P: FromPayload,
        O: IntoOutput,
        F: Fn(Context, P) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = std::result::Result<O, Fault>> + Send + 'static,
    {
        self.handlers.insert(operation.into(), Handler::new(handler));
        self
    }

    /// Limits the time of each run of this operation's handler. A run that takes longer is cancelled, and counts as a
    /// failure of the class `timeout`.
    pub fn timeout(mut self, operation: impl Into<String>, timeout: Duration) -> Self {
        self.timeouts.insert(operation.into(), timeout);
        self
    }

    /// Runs HTTP steps.
    #[cfg(feature = "http")]
    pub fn http(mut self) -> Self {
        self.http = true;
        self
    }

    /// Claims only steps of this queue, and of the other queues added this way; without any, of all queues.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queues.push(queue.into());
        self
    }

    /// Claims only steps of this namespace, and of the other namespaces added this way; without any, of all
    /// namespaces.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespaces.push(namespace.into());
        self
    }

    /// Sets the number of steps that run at once.
    pub fn concurrency(mut self, slots: usize) -> Self {
        self.concurrency = slots.clamp(1, 100_000);
        self
    }

    /// Sets the name of the worker in the records of attempts.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Leaves rescue, pruning and statistics to other workers.
    pub fn without_maintenance(mut self) -> Self {
        self.maintains = false;
        self
    }

    /// Starts the worker.
    ///
    /// Cancel-safe: if the future is dropped, no worker runs.
    pub async fn start(self) -> Result<Worker> {
        let Self { work, name, handlers, timeouts, namespaces, queues, concurrency, http, maintains } = self;
        let name = name.unwrap_or_else(process_name);
        let registration =
            WorkerRegistration::new(&*work.shared.store, &work.shared.call_policy, &name).await?;
        let operations = handlers.keys().cloned().collect();
        let shared = Arc::new(Shared {
            registration,
            selection: Selection { namespaces, queues, operations, http },
            handlers,
            timeouts,
            #[cfg(feature = "http")]
            http: http.then(|| http_runner(&work)).transpose()?,
            notifier: Notifier::new(&work).await?,
            concurrency,
            leases: lease::HeldLeases::default(),
            stopping: CancellationToken::new(),
            claims_ended: CancellationToken::new(),
            stopped: CancellationToken::new(),
            running: TaskTracker::new(),
            work,
        });
        let busy: std::sync::Weak<dyn WorkerLoad> = Arc::<Shared>::downgrade(&shared);
        shared.work.add_worker(busy);
        let (reports, finished) = tokio::sync::mpsc::channel(concurrency);
        let mut tasks = vec![
            tokio::spawn(run::finish(Arc::clone(&shared), finished)),
            tokio::spawn(run::fetch(Arc::clone(&shared), reports)),
            tokio::spawn(lease::renew(Arc::clone(&shared))),
            tokio::spawn(lease::expire(Arc::clone(&shared))),
        ];
        if maintains {
            tasks.push(tokio::spawn(maintain::maintain(Arc::clone(&shared))));
        }
        Ok(Worker { shared, tasks })
    }
}

/// Returns the host name and the process id, for display. No decision depends on it.
pub fn process_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match host.trim() {
        "" => format!("process {}", std::process::id()),
        host => format!("{host}, process {}", std::process::id()),
    }
}

#[cfg(feature = "http")]
fn http_runner(work: &Work) -> Result<crate::HttpRunner> {
    Ok(crate::HttpRunner::of(work)?)
}

/// A handle that lists the destinations of a worker whose breakers are not closed. Cheap to clone.
#[derive(Clone, Debug)]
pub struct OpenBreakers(Weak<Shared>);

impl OpenBreakers {
    /// Returns the names of these destinations, as far as they were called recently.
    pub fn names(&self) -> Vec<String> {
        #[cfg(feature = "http")]
        return (self.0.upgrade().iter())
            .filter_map(|shared| shared.http.as_ref())
            .flat_map(crate::HttpRunner::broken)
            .collect();
        #[cfg(not(feature = "http"))]
        Vec::new()
    }
}

impl Worker {
    /// Returns a handle that lists the destinations whose breakers are not closed.
    pub fn broken(&self) -> OpenBreakers {
        OpenBreakers(Arc::downgrade(&self.shared))
    }

    /// Shuts down gracefully: claims no more steps, waits up to 20 s for running steps, returns the remaining steps
    /// to their queues, and returns when every report is durable. This does not use an attempt of any step.
    ///
    /// Not cancel-safe: if the future is dropped, the worker stops without waiting.
    pub async fn shutdown(self) {
        self.shutdown_within(DRAIN_TIMEOUT).await;
    }

    /// Shuts down gracefully with this drain timeout.
    ///
    /// Not cancel-safe: if the future is dropped, the worker stops without waiting.
    pub async fn shutdown_within(mut self, drain_timeout: Duration) {
        self.shared.stopping.cancel();
        self.shared.running.close();
        let drained = async {
            self.shared.claims_ended.cancelled().await;
            self.shared.running.wait().await;
        };
        let is_idle = tokio::time::timeout(drain_timeout, drained).await.is_ok();
        // A claim in progress must not claim the requeued steps and start them again. The wait is limited, so that a store
        // that hangs does not keep the worker from stopping.
        let lease = self.shared.work.shared.settings.lease;
        let _ = tokio::time::timeout(lease, self.shared.claims_ended.cancelled()).await;
        self.shared.stopped.cancel();
        if !is_idle {
            tracing::info!("requeued steps that did not end within the drain timeout");
        }
        // The last reports are written as long as their leases can last. Later the steps are rescued anyway.
        let ended = async {
            for task in &mut self.tasks {
                let _ = task.await;
            }
        };
        if tokio::time::timeout(lease, ended).await.is_err() {
            let unreported = self.shared.leases.len();
            tracing::error!(unreported, "the store did not accept the last reports; the steps are rescued");
        }
        let work = self.shared.work.clone();
        drop(self);
        work.flush_stats().await;
    }

    /// Returns the number of steps that the worker holds.
    pub fn held(&self) -> usize {
        self.shared.leases.len()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.stopping.cancel();
        // Otherwise running steps would continue under leases that are no longer renewed.
        self.shared.stopped.cancel();
        for task in &self.tasks {
            task.abort();
        }
    }
}

//! The entry point to durable work.

mod beat;
mod depth;
mod intake;
mod look;
mod operators;
mod prepare;
mod pull;
mod signals;
mod stats;
mod versions;
mod wakes;

use std::sync::Arc;

use holdoff_policy::{Policy, PolicySet};

pub use prepare::Prepared;
pub use pull::{Claim, Claimer};
pub use wakes::Wakes;

use crate::names::Names;
use crate::patience::{self, patiently};
use crate::pulse::Heart;
use crate::store::{LaneLimits, Result, Store, Submitted};
use crate::version::Policies;
use crate::worker::WorkerBuilder;
use crate::{Error, Settings, Task, engine};

/// Durable work in one store. Cheap to clone; all clones share connections.
///
/// ```
/// use holdoff_policy::PolicySet;
/// use holdoff_work::{Context, Fault, Task, Work};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), holdoff_work::Error> {
/// let work = Work::open("sqlite::memory:", PolicySet::default()).await?;
/// let worker = work
///     .worker()
///     .handle("greet", |_: Context, name: String| async move { Ok::<_, Fault>(format!("Hello, {name}!")) })
///     .start()
///     .await?;
///
/// let task = work.submit(Task::new("greet").json("Ada")).await?.task();
/// let done = work.wait(task).await?;
/// let greeting: String = done.steps[0].output.as_ref().unwrap().read().unwrap();
/// assert_eq!(greeting, "Hello, Ada!");
/// worker.shutdown().await;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Work {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) policies: Policies,
    pub(crate) settings: Settings,
    pub(crate) names: Names,
    pub(crate) callers: Policy,
    pub(crate) reports: Policy,
    depth: depth::Depth,
    intake: intake::Intake,
    pub(crate) heart: Heart,
    counts: stats::Counts,
}

impl Work {
    /// Opens the store at `sqlite:FILE`, `sqlite::memory:` or `postgres://…`, migrates its schema, and deploys these
    /// policies: they become the active version under the same conditions as with [`join`](Self::join). Any number of
    /// nodes may do so at once.
    ///
    /// This node uses its own policies, whichever version is active on the store. Nodes that share their policies use
    /// `join` instead.
    pub async fn open(url: &str, policies: PolicySet) -> Result<Self> {
        Self::open_with(url, policies, Settings::default()).await
    }

    /// Opens the store like [`open`](Self::open), with settings.
    pub async fn open_with(url: &str, policies: PolicySet, settings: Settings) -> Result<Self> {
        settings.check_policies(&policies).map_err(|waits| Error::Policies(waits.to_string()))?;
        let work = Self::attach(url, policies, settings).await?;
        work.introduce("a program").await?;
        Ok(work)
    }

    /// Opens the store without deploying policies, for programs that read and operate, but do not submit steps under
    /// policies of their own.
    pub async fn attach(url: &str, policies: PolicySet, settings: Settings) -> Result<Self> {
        let callers = patience::for_callers();
        let store = patiently(&callers, |_| Box::pin(engine::open(url))).await?;
        patiently(&callers, |_| store.migrate()).await?;
        let shared = Shared {
            store,
            policies: Policies::new(policies),
            names: Names::within(LaneLimits::of(&settings)),
            settings,
            callers,
            reports: patience::for_reports(),
            depth: depth::Depth::default(),
            intake: intake::Intake::default(),
            heart: Heart::default(),
            counts: stats::Counts::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// Submits a task. When this returns, the task is durable. Tasks that are submitted concurrently share a
    /// transaction.
    ///
    /// If the future is dropped, the task may or may not be stored.
    pub async fn submit(&self, task: Task) -> Result<Submitted> {
        let submitted = self.submit_all(vec![task]).await?;
        submitted.into_iter().next().ok_or_else(|| Error::NotPossible("nothing was submitted".to_owned()))
    }

    /// Submits tasks, all or none. The highest rate is reached with thousands of tasks in one call.
    ///
    /// If the future is dropped, the tasks may or may not be stored.
    pub async fn submit_all(&self, tasks: Vec<Task>) -> Result<Vec<Submitted>> {
        let prepared = self.number(tasks).await?;
        self.take_in(prepared).await
    }

    /// Returns a builder for a worker.
    pub fn worker(&self) -> WorkerBuilder {
        WorkerBuilder::new(self.clone())
    }
}

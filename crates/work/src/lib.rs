//! Durable work: tasks made of steps, which any number of nodes execute and retry by policy, across crashes.
//!
//! ```text
//! work/            submit, query, act                      task.rs, query.rs, record.rs   requests and results
//! worker/          fetch → run → finish; leases, upkeep    pull.rs           the same for remote workers
//! claimed_step.rs  claim, judge, report, for both          store.rs          the interface of a store
//! engine/          postgres and sqlite, one suite          http/             steps that are HTTP requests
//! next_due/        the retry decision in SQL               stats/            the counters of nodes
//! ```
//!
//! # Invariants
//!
//! - Every change is one transaction. Every report names the lease number of its claim.
//! - The lease number of a step only grows: with every claim, and with every exit from `running` except success.
//! - Only the store's clock counts. No node's wall clock is compared with another time.
//! - The time of the next attempt is computed by one function, [`holdoff_policy::Compiled::decide`], or by its
//!   equivalent in SQL.
//!
//! # Deliberately absent
//!
//! Cron-like schedules, streamed results, and a row for a task: the state of a task is computed from its steps.

mod claimed_step;
mod clock;
mod context;
mod due;
mod engine;
mod error;
mod fault;
#[cfg(feature = "http")]
mod http;
mod id;
pub mod metrics;
mod names;
mod next_due;
mod notify;
mod payload;
mod pull;
mod query;
mod record;
mod registration;
mod scrub;
mod settings;
mod signal;
mod state;
mod stats;
mod store;
mod task;
mod transaction;
mod version;
mod with_retry;
mod work;
mod worker;

pub use claimed_step::ClaimedStep;
pub use context::{Context, Kind, Lane};
pub use error::{Error, PolicyError};
pub use fault::Fault;
#[cfg(feature = "http")]
pub use http::{HttpRunner, HttpStep, InvalidHttpSettings, InvalidRequest, Statuses};
pub use id::{ParseIdError, StepId, TaskId};
pub use payload::{Format, Payload};
pub use pull::Claimer;
pub use query::{Action, PageRequest, StepCount, StepFilter, StepPage};
pub use record::{
    AttemptRecord, DelaySource, FailureReason, Moment, QueueStats, StepRecord, TaskPage, TaskRecord,
    TaskSummary,
};
pub use settings::{
    Credential, DestinationLimits, HistorySettings, HttpSettings, LongWait, LongWaits, NotifyRule,
    RequeueSettings, Secret, Settings, SignalSettings,
};
pub use signal::{Fingerprint, SignalRecord, Signalled};
pub use state::{StepState, TaskState, UnknownState};
pub use stats::{FailureStats, NodeRecord, StatsBucket, StatsWindow};
pub use store::{AttemptOutcome, Pausable, Receipt, Submitted};
pub use task::{InvalidTask, Step, Task};
pub use transaction::HeldStep;
#[cfg(feature = "postgres")]
pub use transaction::postgres;
#[cfg(feature = "sqlite")]
pub use transaction::sqlite;
pub use version::{Deployed, Drift, VersionRecord};
pub use work::{PreparedTasks, Wakes, Work};
pub use worker::{Completion, FromPayload, IntoOutput, OpenBreakers, Worker, WorkerBuilder, process_name};

/// The user documentation, compiled and run as tests.
#[cfg(all(doctest, feature = "http"))]
#[doc = include_str!("../../../docs/work.md")]
struct DocsWork;

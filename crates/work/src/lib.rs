//! Durable work: tasks made of steps, which any number of nodes execute and retry by policy, across crashes.
//!
//! ```text
//! work/      the door: submit, ask, act, pull         task.rs, filter.rs, record.rs   what goes in and out
//! worker/    fetch → run → finish; hold, maintain     verdict.rs   a fault becomes an exit, by the policy
//! store.rs   what a store must do                     engine/      postgres and sqlite, one suite for both
//! http/      steps that are HTTP requests             next_due/    the one decision, in SQL
//! ```
//!
//! # Invariants
//!
//! - Every change is one transaction. Every transition out of `running` names the lease of the claim.
//! - The lease number of a step only grows: with every claim, and with every exit from `running`.
//! - Only the store's clock counts. No node's wall clock is compared with another time.
//! - The time of the next attempt is computed by one function, [`holdoff_policy::Compiled::decide`], or by its
//!   equivalent in SQL.
//!
//! # Deliberately absent
//!
//! Cron-like schedules, streamed results, and a row for a task: the state of a task is computed from its steps.

mod clock;
mod context;
mod engine;
mod error;
mod fault;
mod filter;
#[cfg(feature = "http")]
mod http;
mod id;
mod look;
pub mod metrics;
mod names;
mod next_due;
mod node;
mod notify;
mod own;
mod patience;
mod payload;
mod presence;
mod pulse;
mod record;
mod scrub;
mod settings;
mod signal;
mod state;
mod store;
mod task;
mod verdict;
mod version;
mod work;
mod worker;

pub use context::{Context, Kind, Lane};
pub use error::Error;
pub use fault::Fault;
pub use filter::{Action, Filter, Page};
#[cfg(feature = "http")]
pub use http::{HttpRunner, HttpStep, InvalidHttpSettings, InvalidRequest, Statuses};
pub use id::{NotAnId, StepId, TaskId};
pub use look::{Count, StepPage};
pub use node::NodeRecord;
pub use own::Holding;
#[cfg(feature = "postgres")]
pub use own::postgres;
#[cfg(feature = "sqlite")]
pub use own::sqlite;
pub use payload::{Format, Payload};
pub use pulse::{Beat, Failing, Pulse};
pub use record::{AttemptRecord, Moment, QueueStats, StepRecord, TaskPage, TaskRecord, TaskSummary};
pub use settings::{
    Credential, Destination, History, HttpSettings, LongWait, LongWaits, Notify, Requeue, Secret, Settings,
    Signals,
};
pub use signal::{Fingerprint, SignalRecord, Signalled};
pub use state::{StepState, TaskState, UnknownState};
pub use store::{Outcome, Pausable, Receipt, Submitted};
pub use task::{InvalidTask, Step, Task};
pub use version::{Drift, Published, VersionRecord};
pub use work::{Claim, Claimer, Prepared, Wakes, Work};
pub use worker::{Broken, FromPayload, IntoOutput, Ran, Worker, WorkerBuilder, this_process};

/// The user documentation, compiled and run as tests.
#[cfg(all(doctest, feature = "http"))]
#[doc = include_str!("../../../docs/work.md")]
struct DocsWork;

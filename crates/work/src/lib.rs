//! Durable work: tasks made of steps, retried by the policy over any crash, by any number of nodes.
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
//! - Every change is one transaction. Whatever leaves `running` names the lease it was claimed under.
//! - A lease number only grows: with every claim, and with every exit.
//! - The clock is the store's. Nothing here compares a node's wall clock with anything.
//! - When to try again is decided in one place, [`holdoff_policy::Compiled::decide`], or by its twin in SQL.
//!
//! # Deliberately absent
//!
//! Cron-like schedules, results as a stream, and a row for a task: a task is what its steps say.

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

/// The page for people, compiled and run.
#[cfg(all(doctest, feature = "http"))]
#[doc = include_str!("../../../docs/work.md")]
struct DocsWork;

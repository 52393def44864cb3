//! Durable work: tasks made of steps, retried by the policy over any crash, by any number of nodes.

mod clock;
mod context;
mod engine;
mod error;
mod fault;
mod filter;
#[cfg(feature = "http")]
mod http;
mod id;
pub mod metrics;
mod names;
mod next_due;
mod notify;
mod own;
mod patience;
mod payload;
mod record;
mod scrub;
mod settings;
mod state;
mod store;
mod task;
mod verdict;
mod work;
mod worker;

pub use context::{Context, Kind, Lane};
pub use error::Error;
pub use fault::Fault;
pub use filter::{Action, Filter, Page};
#[cfg(feature = "http")]
pub use http::{HttpRunner, HttpStep, InvalidHttpSettings, InvalidRequest, Statuses};
pub use id::{NotAnId, StepId, TaskId};
pub use own::Holding;
#[cfg(feature = "postgres")]
pub use own::postgres;
#[cfg(feature = "sqlite")]
pub use own::sqlite;
pub use payload::{Format, Payload};
pub use record::{AttemptRecord, Moment, QueueStats, StepRecord, TaskRecord};
pub use settings::{
    Credential, Destination, History, HttpSettings, LongWait, LongWaits, Notify, Requeue, Secret, Settings,
};
pub use state::{StepState, TaskState, UnknownState};
pub use store::{Outcome, Pausable, Receipt, Submitted};
pub use task::{InvalidTask, Step, Task};
pub use work::{Claim, Claimer, Prepared, Work};
pub use worker::{FromPayload, IntoOutput, Ran, Worker, WorkerBuilder};

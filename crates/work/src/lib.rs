//! Durable work: tasks made of steps, retried by the policy over any crash, by any number of nodes.

mod clock;
mod context;
mod fault;
#[cfg(feature = "http")]
mod http;
mod id;
mod payload;
mod settings;
mod state;

pub use context::{Context, Kind, Lane};
pub use fault::Fault;
#[cfg(feature = "http")]
pub use http::{HttpRunner, HttpStep, InvalidHttpSettings, InvalidRequest, Statuses};
pub use id::{NotAnId, StepId, TaskId};
pub use payload::{Format, Payload};
pub use settings::{Credential, Destination, History, HttpSettings, Notify, Requeue, Secret, Settings};
pub use state::{StepState, TaskState, UnknownState};

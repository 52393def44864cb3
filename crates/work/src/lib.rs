//! Durable work: tasks made of steps, retried by the policy over any crash, by any number of nodes.

mod context;
mod fault;
mod id;
mod payload;
mod settings;
mod state;

pub use context::{Context, Kind, Lane};
pub use fault::Fault;
pub use id::{NotAnId, StepId, TaskId};
pub use payload::{Format, Payload};
pub use settings::{
    Credential, Destination, History, HttpSettings, LongWait, LongWaits, Notify, Requeue, Secret, Settings,
};
pub use state::{StepState, TaskState, UnknownState};

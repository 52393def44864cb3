//! Tasks, steps and locks as they are shown in JSON.

mod lock;
mod step;
mod task;

pub use lock::{ShownHolder, ShownLock, show_lock};
pub(crate) use lock::{seconds, show_holder};
pub(crate) use step::{ShownAttempt, ShownStep, encode};
pub use task::{ShownTask, show};

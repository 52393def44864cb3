//! Retries calls inside a process.
//!
//! ```
//! use holdoff_policy::Policy;
//! use holdoff_retry::retry;
//!
//! # async fn fetch() -> Result<String, std::io::Error> { Ok("fetched".to_owned()) }
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let page = retry(&Policy::standard(), || fetch()).await?;
//! # assert_eq!(page, "fetched");
//! # Ok(()) }
//! ```
//!
//! [`retry()`] covers the common case. [`Retry`] adds the options that a service needs: an operation name, a
//! budget and a breaker shared by all callers of the same dependency, a refresher for expired credentials, a
//! deadline, a timeout for each attempt, hooks and cancellation. [`blocking`] does the same without an async
//! runtime. [`requeue_after`] only computes the delay, for controllers that must not sleep; [`Backoff`] waits
//! between the rounds of a loop.
//!
//! # Invariants
//!
//! - Only [`Policy::decide`](holdoff_policy::Compiled::decide) decides whether and when to retry; the
//!   executors carry out the decision.
//! - Dropping the future stops all activity: no task is spawned, no timer remains.
//! - A zero delay needs no timer. A successful first attempt needs no clock, no lock and no allocation.
//! - Errors and payloads are never logged, only an error's type and class.
//!
//! # Deliberately absent
//!
//! Retries across a crash. Durable work provides them.

#[cfg(feature = "tokio")]
mod asynchronous;
pub mod blocking;
mod classify;
#[cfg(feature = "tower")]
mod layer;
pub mod metrics;
#[cfg(feature = "reqwest")]
mod middleware;
mod outcome;
mod requeue;
mod retry;
mod shared;
mod state;

#[cfg(feature = "http")]
pub use classify::retry_after;
pub use classify::{ByTrait, Classifier};
pub use holdoff_policy::Classify;
#[cfg(feature = "tower")]
pub use layer::{RetryLayer, RetryService};
#[cfg(feature = "reqwest")]
pub use middleware::{OperationName, RetryMiddleware};
pub use outcome::{JudgedReport, Report, RetryError, StopReason};
#[cfg(feature = "tokio")]
pub use requeue::Backoff;
pub use requeue::{Requeue, requeue_after};
#[cfg(feature = "tokio")]
pub use retry::retry;
pub use retry::{Hook, NoHook, Retry, Retrying};
pub use shared::SharedBreaker;
#[cfg(feature = "tokio")]
pub use shared::{RefreshFailed, Refresher};

//! Retries calls inside a process.
//!
//! ```
//! use holdoff_policy::Policy;
//! use holdoff_retry::Retryable;
//!
//! # async fn fetch() -> Result<String, std::io::Error> { Ok("fetched".to_owned()) }
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), std::io::Error> {
//! let page = fetch.retry(&Policy::standard()).await?;
//! # assert_eq!(page, "fetched");
//! # Ok(()) }
//! ```
//!
//! [`Retryable::retry`] covers the common case, and `?` converts the call's own error. A [`Retry`] adds the options that a service
//! needs: an operation name, a budget and a breaker shared by all callers of the same dependency, a refresher for expired
//! credentials, a deadline and a timeout for each attempt. It lives in a struct, and the tower layer and the reqwest middleware use
//! it, too. [`RetryCall`] has the options of one call: [`when`](RetryCall::when) and [`classify`](RetryCall::classify) for errors
//! without a class, [`judge`](RetryCall::judge) for failures that look like successes, [`on_retry`](RetryCall::on_retry),
//! [`cancel`](RetryCall::cancel).
//!
//! [`blocking`] does the same without an async runtime. [`requeue_after`] only computes the delay, for controllers that must not
//! sleep; [`Backoff`] waits between the rounds of a loop. [`testing`] has scripted outcomes, fake time and chaos.
//!
//! The [`guide`] has a page for each task, and pages for those who come from another library.
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `tokio` (default) | tokio's timer; without it, [give a timer](guide::runtimes) |
//! | `tower` | `RetryLayer` |
//! | `http` | `response_failure`, `retry_after` |
//! | `reqwest`, `hyper`, `sqlx`, `tonic` | the classes of the errors of these crates |
//! | `reqwest-middleware` | `RetryMiddleware` |
//!
//! # Invariants
//!
//! - Only [`Policy::decide`](holdoff_policy::Compiled::decide) decides whether and when to retry; the
//!   executor carries out the decision.
//! - Dropping the future stops all activity: no task is spawned, no timer remains.
//! - A zero delay needs no timer. A successful first attempt needs no clock, no lock and no allocation.
//! - Errors and payloads are never logged, only an error's type and class.
//!
//! # Deliberately absent
//!
//! Retries across a crash. Durable work provides them.

pub mod blocking;
mod call;
mod executor;
pub mod guide;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "tower")]
mod layer;
pub mod metrics;
#[cfg(feature = "reqwest-middleware")]
mod middleware;
mod outcome;
mod requeue;
mod retry;
mod shared;
mod sleeper;
pub mod testing;

pub use call::{
    Attempts, ByClass, ByError, ByOutcome, Direct, Guarded, Hook, Judge, Judged, Mode, NoHook, OnRetry,
    Reported, RetryCall, Retryable, Retrying, retry,
};
pub use holdoff_policy::Classify;
#[cfg(feature = "http")]
pub use http::{response_failure, retry_after};
#[cfg(feature = "tower")]
pub use layer::{CloneBy, CloneRequest, RetryLayer, RetryResponse, RetryService, TryClone};
#[cfg(feature = "reqwest-middleware")]
pub use middleware::RetryMiddleware;
pub use outcome::{JudgedReport, Report, RetryError, StopReason};
pub use requeue::{Backoff, Requeue, requeue_after};
pub use retry::{Retry, RetryBy, RetryRules, Setup};
pub use shared::{RefreshFailed, Refresher, SharedBreaker};
pub use sleeper::{Sleeper, ThreadSleeper, TokioSleeper};

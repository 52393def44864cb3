//! Decides when to retry.
//!
//! Every component that contends for a resource has the same question, *when may I retry?*, and one function
//! answers it: [`Policy::decide`](Compiled::decide). A policy is validated once and compiled into a small
//! table of integers ([`Compiled`]). From then on a decision is a lookup and one multiplication.
//!
//! ```
//! use holdoff_policy::{Decision, Failure, Growth, Jitter, Policy, SoFar};
//! use std::time::Duration;
//!
//! let policy = Policy::builder(Growth::exponential(Duration::from_millis(100), 2.0))
//!     .cap(Duration::from_secs(10))
//!     .jitter(Jitter::Full)
//!     .attempts(5)
//!     .build()?;
//!
//! // The second attempt has failed; the caller draws the roll.
//! let so_far = SoFar::after(2);
//! let decision = policy.decide(&so_far, &Failure::transient(), u32::MAX);
//! assert_eq!(decision, Decision::Retry { after: Duration::from_millis(200) });
//! # Ok::<(), holdoff_policy::InvalidPolicy>(())
//! ```
//!
//! # Invariants
//!
//! - **Pure.** No clock, no random numbers, no I/O. Time is passed in as durations, randomness as a
//!   `roll: u32` that the caller drew. The same input gives the same delay, on every machine and in every
//!   language that computes from the compiled form.
//! - **No float, no overflow, no panic** at run time, for any attempt up to `u32::MAX` and any input.
//! - **The cap holds.** No delay exceeds it, because the *window* is cut at the cap, not the sample: the
//!   probability of the removed part does not accumulate at the cap. `Retry-After` and `contention` have limits of
//!   their own.
//! - **One place.** Only [`decide`](Compiled::decide) computes delays; schedules, explanations and the
//!   breaker call it.
//!
//! # Deliberately absent
//!
//! Sleeping, retrying, HTTP, SQL. The crates that call this one provide them.
//!
//! Without the feature `std` the crate is `no_std` + `alloc`; `std` adds the policy file
//! ([`PolicySet::from_toml`]), HTTP dates in `Retry-After`, and the classes of the errors of `std`. The features `hyper`,
//! `reqwest`, `sqlx` and `tonic` add the classes of the errors of these crates.

#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

mod breaker;
mod budget;
mod classes;
mod classify;
mod compiled;
mod decide;
mod explain;
mod failure;
#[cfg(feature = "std")]
pub mod file;
#[cfg(feature = "std")]
mod foreign;
mod glob;
mod growth;
mod jitter;
mod lint;
mod micros;
mod policy;
mod preset;
mod retry_after;
mod set;
mod token_bucket;
mod unprintable;
mod window;

pub use breaker::{Admission, Breaker, BreakerOptions, BreakerState, Ticket};
pub use budget::{Budget, BudgetOptions};
pub use classes::{ClassMap, ClassRow, Grpc, Replay};
pub use classify::Classify;
pub use compiled::{Compiled, DelayShape, InvalidPolicy, InvalidPolicyId, MAX_TABLE, PolicyId};
pub use decide::{Attempt, Decision, GiveUpReason, Schedule, SoFar};
pub use explain::{Explanation, Total, Wait};
pub use failure::{Class, Failure};
#[cfg(feature = "std")]
pub use file::{PolicyChange, Problem, Problems, changes, format_duration, nearest, parse_duration};
#[cfg(feature = "schema")]
pub use file::{schema, schema_keys};
pub use glob::matches as matches_pattern;
pub use growth::Growth;
pub use jitter::Jitter;
pub use lint::{Finding, Severity, lint, lint_policy};
pub use micros::{MAX_DELAY, as_micros_i64, as_micros_u64};
pub use policy::{Contention, Policy, PolicyBuilder};
pub use preset::PRESETS;
#[cfg(feature = "std")]
pub use retry_after::retry_after_from_headers;
pub use retry_after::{Beyond, RetryAfter, retry_after_seconds};
pub use set::{OperationSettings, PolicyScope, PolicySet};
pub use token_bucket::{TokenBucket, TokenRate};
pub use unprintable::is_unprintable;
pub use window::Window;

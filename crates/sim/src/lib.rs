//! The contention lab: a simulator of retry policies under contention.
//!
//! A seeded simulation over virtual time runs the real policy, budget and breaker. It shows in a moment the behaviour
//! of a thousand clients with a policy, before they run in production.
//!
//! - [`scenario`]: the models. Each is a function of its parameters, a strategy and a seed.
//! - [`Strategy`]: decides about the next attempt; real policies, and the classics of the literature.
//! - [`run`]: many runs of many strategies, side by side, as [`ResultRow`]s of a table.
//! - [`kernel`]: the event queue, random numbers, and a simulated network of machines that fail. Simulation tests of
//!   other crates build on it.
//! - `kit` (a feature): machines for these tests, which run a core with the driver that production uses.
//!
//! # Invariants
//!
//! - **Pure.** No clock, no thread-local random numbers, no I/O. Time is virtual, in microseconds, and never goes back.
//!   Events of the same time happen in the order in which they were scheduled.
//! - **Same seed, same bytes**, with any number of threads. Each actor draws from its own stream, and threads add up
//!   only integers. A simulation computes floats only with exactly specified operations, so figures are the same on
//!   every machine. Charts take logarithms and write the results with two decimals.
//! - **Common random numbers.** The seed of a run does not depend on the strategy: all strategies meet the same
//!   situation.
//! - **True counters.** A fault is counted when it strikes, not when it might have.
//!
//! # Deliberately absent
//!
//! Files: the [report] is text, and the caller decides where it goes. Real networks and real time: the simulation shows
//! the effect of a policy in a model, and the documentation of each scenario describes its model.

pub mod chart;
pub mod kernel;
#[cfg(feature = "kit")]
pub mod kit;
mod micros;
pub mod report;
mod runner;
pub mod scenario;
mod stats;
mod strategy;

pub use micros::Micros;
pub use runner::{Plan, ResultRow, run};
pub use stats::{Histogram, HistogramBucket, Pooled, Series, Summary};
pub use strategy::{Classic, ClassicKind, LAB_STRATEGIES, ProposerRule, Rule, Strategy, StrategyDecision};

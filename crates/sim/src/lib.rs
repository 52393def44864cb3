//! The contention lab: see a storm before it happens.
//!
//! A seeded simulation over virtual time that runs the real policy, budget and breaker, so that one can
//! ask what a thousand clients would do with a policy, and get an answer in a moment.
//!
//! - [`scenario`]: the models. Each is a function of its parameters, a strategy and a seed.
//! - [`Strategy`]: what decides the next try; real policies, and the textbook's classics.
//! - [`run`]: many runs of many strategies, side by side, as [`Row`]s of a table.
//! - [`kernel`]: the event queue, chance, and a simulated network of machines that fail; simulation tests
//!   of other crates build on it.
//!
//! # Invariants
//!
//! - **Pure.** No clock, no thread's random numbers, no I/O. Time is virtual, in microseconds, and never
//!   goes back; equal times happen in the order they were asked for.
//! - **Same seed, same bytes**, with any number of threads. Each actor draws from a stream of its own, and what
//!   threads add up is whole numbers. Floats of a simulation are made by exactly specified operations only, so
//!   figures are the same on every machine; charts take logarithms, and write what comes of it with two decimals.
//! - **Common random numbers.** A run's seed does not depend on the strategy: all meet the same situation.
//! - **True counters.** A fault is counted when it strikes, not when it might have.
//!
//! # Deliberately absent
//!
//! Files: the [report] is text, and whoever calls decides where it goes. Real networks and real time: the
//! simulation says what a policy does in a model, and the model is written down in words.

pub mod chart;
mod histogram;
pub mod kernel;
mod micros;
mod pooled;
pub mod report;
mod runner;
pub mod scenario;
mod series;
mod strategy;
mod summary;

pub use histogram::{Bucket, Histogram};
pub use micros::Micros;
pub use pooled::Pooled;
pub use runner::{Plan, Row, run};
pub use series::Series;
pub use strategy::{Classic, ClassicKind, LAB_STRATEGIES, Manner, Next, Rule, Strategy};
pub use summary::Summary;

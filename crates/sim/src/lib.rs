//! The contention lab.

mod histogram;
pub mod kernel;
mod micros;
pub mod scenario;
mod series;
mod strategy;

pub use histogram::{Bucket, Histogram};
pub use micros::Micros;
pub use series::Series;
pub use strategy::{Classic, ClassicKind, LAB_STRATEGIES, Next, Rule, Strategy};

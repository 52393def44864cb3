//! The scenarios: each a model in words, its parameters, and what a run of it shows.

mod measured;
pub mod row;

pub use measured::Measured;

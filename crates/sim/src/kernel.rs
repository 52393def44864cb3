//! The event kernel: virtual time, random numbers, machines and the links between them.
//!
//! It contains no retry logic. The scenarios use its [`EventQueue`] and [`Chance`]. Simulation tests of distributed
//! programs use [`World`], which adds crashes, skewed clocks and a network that loses, duplicates, delays, reorders and
//! partitions messages, and counts every fault.

mod chance;
mod faults;
mod latency;
mod link;
mod node;
mod queue;
mod skew;
mod world;

pub use chance::{Chance, mix};
pub use faults::Faults;
pub use latency::Latency;
pub use link::Link;
pub use node::{Around, Node, NodeId};
pub use queue::EventQueue;
pub use skew::Skew;
pub use world::{Incident, Step, World};

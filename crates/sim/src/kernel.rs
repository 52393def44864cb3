//! The event kernel: virtual time, random numbers, machines and the links between them.
//!
//! It contains no retry logic. The scenarios use its [`EventQueue`] and [`SimRng`]. Simulation tests of distributed
//! programs use [`World`], which adds crashes, skewed clocks and a network that loses, duplicates, delays, reorders and
//! partitions messages, and counts every fault.

mod link;
mod queue;
mod rng;
mod skew;
mod world;

pub use link::{FaultCounters, Latency, LinkModel};
pub use queue::EventQueue;
pub use rng::{SimRng, mix};
pub use skew::Skew;
pub use world::{Incident, NodeContext, NodeId, SimNode, StepOutcome, World};

//! The machines against their laws.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod laws;

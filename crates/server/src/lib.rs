//! holdoff over HTTP: durable work for any language, and a page to look at it.
//!
//! [`serve`] runs a daemon until a signal ends it; [`Server`] is the same without the signals. A daemon takes tasks
//! in, makes the requests of HTTP steps, and shows what became of them. It takes signals in, of which many make one
//! task, and lends locks to clients who keep them themselves. Any number of daemons may share one store.
//!
//! # Invariants
//!
//! - A `201` is sent when the task is durable, never before.
//! - Whoever can reach the port can have requests made. So it listens on loopback only, answers only to the names of
//!   loopback, and takes in only what a browser cannot be tricked into sending: JSON that says so.
//! - Every answer that is not a success is a problem (RFC 9457) whose `type` stays the same.
//! - Every connection, head, body, list and wait has a limit.
//! - A client that goes away while it waits leaves nothing behind that waits.
//! - Payloads are shown to those who ask for them, and stand in no log, page or metric.
//!
//! # Deliberately absent
//!
//! TLS, and as yet tokens: put something in front that has them.

mod api;
mod app;
mod clock;
mod error;
mod gateway;
mod guard;
mod health;
mod listen;
mod metrics;
mod options;
#[cfg(feature = "otlp")]
pub mod otlp;
mod page;
mod place;
mod problem;
mod server;
mod show;
mod stop;
mod tidy;

pub use error::Error;
pub use options::Options;
pub use place::Place;
pub use server::Server;
pub use show::{ShownHolder, ShownLock, ShownTask, show, show_lock};
pub use stop::{Stopped, serve};

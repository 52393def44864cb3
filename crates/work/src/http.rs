//! HTTP steps.
//!
//! [`HttpStep`] is the request as it is stored, and [`HttpRunner`] sends it. A request passes these stages, in order:
//!
//! ```text
//! prepare      a valid request to a permitted address                            else a permanent failure
//! credential   the access token for this host, from memory or fetched once       else the step is retried
//! gate         concurrency, budget, rate and breaker of the destination          else the step is requeued
//! exchange     one request, its redirects, and a bounded part of the response
//! ```
//!
//! # Invariants
//!
//! - A step at a limit never waits here: it returns to its queue and does not use an attempt.
//! - A secret is read when it is needed, and an access token is kept only in memory. Neither is part of any message,
//!   output, log or `Debug` form; a token that a response echoes is redacted.
//! - Of every response at most `max_response` bytes are held.
//! - A credential is sent only to the hosts listed for it. A redirect to another origin carries neither it nor the headers
//!   and the body of the step.
//! - Every address is checked after its name was resolved and before the connection: a link-local address is always
//!   refused, with `deny_private` every private one that the settings do not list.
//!
//! # Deliberately absent
//!
//! Cookies, compression, and limits for the hosts of redirects: the limits of the first host apply.

mod client;
mod credentials;
mod gate;
mod request;
mod response;
mod runner;
mod step;

#[cfg(test)]
mod tests;

pub use client::InvalidHttpSettings;
pub use request::InvalidRequest;
pub use runner::HttpRunner;
pub use step::{HttpStep, Statuses};

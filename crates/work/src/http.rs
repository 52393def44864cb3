//! HTTP steps.
//!
//! [`HttpStep`] is the request as it is stored, and [`HttpRunner`] sends it. A request passes these stages, in order:
//!
//! ```text
//! check        is it a request at all, and may its address be called?       else it fails for good
//! credential   one that is for this host; a token from memory, or fetched once for all who need it     else it is retried
//! gate         concurrency, budget, rate and breaker of its destination     else it comes back later
//! exchange     one request, its redirects, a bounded part of the answer
//! ```
//!
//! # Invariants
//!
//! - A step at a limit never waits here: it returns to its queue and does not use an attempt.
//! - A secret is read when it is needed, and an access token is kept only in memory. Neither is part of any message,
//!   output, log or `Debug` form; a token that a response echoes is redacted.
//! - Of every response at most `max_response` bytes are held.
//! - A credential is sent only to the hosts listed for it, and to no other host by a redirect.
//! - With `deny_private`, every address is checked after its name was resolved and before the connection.
//!
//! # Deliberately absent
//!
//! Cookies, compression, and limits for the hosts of redirects: the limits of the first host apply.

mod address;
mod answer;
mod check;
mod client;
mod credentials;
mod destinations;
mod gate;
mod hosts;
mod rate;
mod runner;
mod statuses;
mod step;
mod token;
mod trouble;

#[cfg(test)]
mod tests;

pub use check::InvalidRequest;
pub use client::InvalidHttpSettings;
pub use runner::HttpRunner;
pub use statuses::Statuses;
pub use step::HttpStep;

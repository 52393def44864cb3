//! Steps that are HTTP requests.
//!
//! [`HttpStep`] is the request as it is stored, [`HttpRunner`] makes it. A request passes, in this order:
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
//! - A step at a limit never waits here: it goes back to its queue and burns no attempt.
//! - A secret is read when it is needed, a token lives in memory only, and neither is part of any message,
//!   output, log or `Debug` form; a token that an answer echoes is blotted out.
//! - Whatever the other side sends, no more than `max_response` bytes of it are held.
//! - A credential goes only to the hosts it is for, and to no other by a redirect.
//! - With `deny_private`, every address is judged after its name was resolved and before it is connected to.
//!
//! # Deliberately absent
//!
//! Cookies, compression, and limits for the hosts a redirect leads to: the limits are the first host's.

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

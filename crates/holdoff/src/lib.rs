//! Decides when to try again, and makes it hold everywhere things contend.
//!
//! One crate for all of holdoff, one feature for each part:
//!
//! | module | feature | what it does |
//! |---|---|---|
//! | [`policy`] | always | when to try again: one pure decision |
//! | [`retry`] | `retry` (default) | try again inside a process; `tower` and `reqwest` add adapters |
//! | `work` | `work` | durable tasks made of steps, on SQLite or Postgres |
//! | `lock` | `lock` | one at a time: leases with fencing tokens; `kubernetes` adds its Leases to keep them in |
//! | `ledger` | `ledger` | one leader, one history; and locks kept in it |
//! | `client` | `client` | talks to the daemon, for programs that keep no store themselves |
//!
//! ```
//! use holdoff::policy::PolicySet;
//! use holdoff::retry::Retry;
//!
//! # async fn login() -> Result<&'static str, std::io::Error> { Ok("welcome") }
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Or `holdoff::load("holdoff.toml")?`.
//! let set = PolicySet::from_toml(r#"
//!     [operations]
//!     "user.login" = "aggressive"
//! "#)?;
//! let welcome = Retry::for_operation(&set, "default", "user.login").run(|| login()).await?;
//! # assert_eq!(welcome, "welcome");
//! # Ok(()) }
//! ```

#[cfg(feature = "client")]
pub mod client;
mod load;

#[cfg(feature = "ledger")]
pub use holdoff_ledger as ledger;
#[cfg(feature = "lock")]
pub use holdoff_lock as lock;
pub use holdoff_policy as policy;
#[cfg(feature = "retry")]
pub use holdoff_retry as retry;
#[cfg(feature = "work")]
pub use holdoff_work as work;
pub use load::{LoadError, load, load_with};

/// The pages' examples are compiled, so that they can be pasted.
#[cfg(all(doctest, feature = "reqwest"))]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;

    #[doc = include_str!("../../../docs/retry.md")]
    struct Retrying;

    #[doc = include_str!("../../../docs/crowd.md")]
    struct Crowd;
}

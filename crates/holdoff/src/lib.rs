//! Decides when to retry, and applies the decision wherever components contend for a resource.
//!
//! One crate for all of holdoff, one feature for each part:
//!
//! | module | feature | purpose |
//! |---|---|---|
//! | [`policy`] | always | decides when to retry: one pure function |
//! | [`retry`] | `retry` (default) | retries inside a process; `tower` and `reqwest-middleware` add adapters, `reqwest`, `hyper`, `sqlx` and `tonic` classes of errors |
//! | `work` | `work` | durable tasks made of steps, on SQLite or Postgres |
//! | `lock` | `lock` | mutual exclusion: leases with fencing tokens; `kubernetes` adds a store in Kubernetes Leases |
//! | `ledger` | `ledger` | a replicated log with one leader and one history; stores locks too |
//! | `client` | `client` | a client of the daemon, for programs without a store of their own |
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

/// Compiles the examples of the documentation pages.
#[cfg(all(doctest, feature = "reqwest-middleware"))]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;

    #[doc = include_str!("../../../docs/retry.md")]
    struct Retrying;

    #[doc = include_str!("../../../docs/contention.md")]
    struct Contention;
}

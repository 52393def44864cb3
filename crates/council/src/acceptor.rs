//! The service that decides: it keeps promises and votes of many councils on one disk.

#[cfg(any(test, feature = "flaws"))]
pub mod disk;
mod protocol;
mod store;

pub use protocol::{Push, ROLE, Reply, Request};
pub use store::{Store, StoreError};

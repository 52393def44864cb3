//! The service that decides: it keeps promises and votes of many councils on one disk.

#[cfg(any(test, feature = "flaws"))]
pub mod disk;
mod store;

pub use store::{Store, StoreError};

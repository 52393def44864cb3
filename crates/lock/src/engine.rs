//! The stores that can keep locks: a folder for each, behind one trait, tested by one conformance suite.

#[cfg(any(feature = "kubernetes", feature = "ledger"))]
mod again;
#[cfg(feature = "kubernetes")]
pub(crate) mod kubernetes;
#[cfg(feature = "ledger")]
pub(crate) mod ledger;
pub(crate) mod memory;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(any(feature = "kubernetes", feature = "ledger"))]
mod sights;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod sql;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
#[cfg(all(feature = "ledger", feature = "postgres", feature = "sqlite"))]
#[cfg(test)]
mod tests;

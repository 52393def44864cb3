//! The stores that can keep locks: one folder each, behind one trait, under one conformance suite.

#[cfg(feature = "kubernetes")]
pub(crate) mod kubernetes;
pub(crate) mod memory;

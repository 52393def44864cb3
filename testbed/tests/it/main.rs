//! The testbed itself: a throw-away Postgres, and the stand-in for Kubernetes.

#[cfg(feature = "kubernetes")]
mod kubernetes;
mod postgres;

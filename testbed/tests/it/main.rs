//! Tests of the testbed itself: the temporary Postgres cluster and the simulated Kubernetes API server.

#[cfg(feature = "kubernetes")]
mod kubernetes;
mod postgres;

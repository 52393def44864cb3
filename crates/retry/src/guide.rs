//! A page for each task.

#[doc = include_str!("guide/arguments.md")]
pub mod arguments {}

#[doc = include_str!("guide/breakers.md")]
pub mod breakers {}

#[doc = include_str!("guide/budgets.md")]
pub mod budgets {}

#[doc = include_str!("guide/mutable.md")]
pub mod mutable {}

#[doc = include_str!("guide/policy_file.md")]
pub mod policy_file {}

#[doc = include_str!("guide/responses.md")]
pub mod responses {}

#[doc = include_str!("guide/runtimes.md")]
pub mod runtimes {}

#[doc = include_str!("guide/from_backon.md")]
pub mod from_backon {}

#[doc = include_str!("guide/from_reqwest_retry.md")]
pub mod from_reqwest_retry {}

#[doc = include_str!("guide/from_tokio_retry2.md")]
pub mod from_tokio_retry2 {}

#[doc = include_str!("guide/from_tower.md")]
pub mod from_tower {}

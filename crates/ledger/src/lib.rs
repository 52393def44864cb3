//! **One leader, one history.** So far, what a history is about: [`machine`], the states that goals change.
//!
//! Pure: no clock, no chance, no I/O.

pub mod machine;

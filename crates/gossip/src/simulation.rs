//! Nodes on bad links, with a log that follows the hint where there is a quorum: crashes, partitions, churn and liars.
//!
//! Everything is measured in virtual time. A scene that fails says the seed it ran under.

mod changes;
pub(crate) mod keys;
mod liar;
mod machine;
mod scenes;
mod town;

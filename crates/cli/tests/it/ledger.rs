//! Ledgers of real processes: one, two, three and five daemons. The tests kill, pause, isolate and wipe some of them,
//! and fill their disks.
//!
//! In every case no acknowledged transaction is lost and none takes effect twice. In the end all daemons have the
//! same history and the same state.

mod behind;
mod cluster;
mod disks;
pub(crate) mod environment;
#[cfg(target_os = "linux")]
mod jepsen;
mod leaders;
mod linear;
mod locks;
mod members;
mod output;
mod recovery;
mod signals;
mod transactions;

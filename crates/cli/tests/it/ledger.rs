//! Ledgers of real processes: one, two, three and five daemons, of which some are killed, paused, cut off, wiped, and left
//! without room on their disk.
//!
//! Whatever happens, nothing that was acknowledged is lost, nothing happens twice, and in the end all have one history and
//! one state.

mod alone;
mod cluster;
mod daemon;
mod deeds;
mod disks;
mod leaders;
mod linear;
mod locks;
mod members;
mod namespaces;
mod parted;
mod place;
mod rolling;
mod signals;
mod words;

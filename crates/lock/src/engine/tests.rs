//! Tests of the engines that record waiters, on real files, a real server and a ledger's table, through two independent
//! clients, as two processes would be.

mod alone;
mod crash;
mod crowd;
mod place;

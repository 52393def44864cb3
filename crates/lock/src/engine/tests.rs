//! What the engines that know who waits promise, asked on real files, a real server and a ledger's table, through two
//! doors that know nothing of each other, as two processes would.

mod alone;
mod crash;
mod crowd;
mod place;

//! Councils of real processes: three acceptors and five devices. The tests kill, stop, wipe and isolate some of them.
//!
//! The council makes progress, no device diverges, and every operation takes effect at most once. All responses fit
//! one order of events, checked by the slots and independently by porcupine.

mod device;
mod environment;
mod history;
mod killed_device;
mod scenario;

use environment::{Loopback, Namespaces};

#[test]
fn a_council_tolerates_killed_wiped_and_stopped_acceptors() {
    scenario::run(&mut Loopback, 1);
}

#[test]
fn a_device_killed_after_the_votes_continues_its_operation() {
    killed_device::run();
}

#[test]
fn a_council_tolerates_isolated_acceptors_in_network_namespaces() {
    match Namespaces::create() {
        Ok(mut namespaces) => scenario::run(&mut namespaces, 2),
        Err(why) => holdoff_testbed::skip(&format!("network namespaces cannot be made here ({why})")),
    }
}

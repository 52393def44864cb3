//! Councils of real processes: three acceptors and five devices. The tests kill, stop, wipe and isolate some of them.
//!
//! The council makes progress, no device diverges, and every operation takes effect at most once. All responses fit
//! one order of events, checked by the slots and independently by porcupine.

mod acceptors;
mod between;
mod device;
mod history;
mod loopback;
mod namespaces;
mod relay;
mod story;

use loopback::Loopback;
use namespaces::Namespaces;

#[test]
fn a_council_goes_on_whoever_is_killed_wiped_or_stopped() {
    story::tell(&mut Loopback, 1);
}

#[test]
fn killed_between_the_votes_and_carrying_them_out_a_device_goes_on_from_there() {
    between::tell();
}

#[test]
fn a_council_goes_on_in_network_namespaces_whoever_is_cut_off() {
    match Namespaces::make() {
        Ok(mut namespaces) => story::tell(&mut namespaces, 2),
        Err(why) => holdoff_testbed::skip(&format!("network namespaces cannot be made here ({why})")),
    }
}

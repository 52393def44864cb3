//! Recovery: after healing, all operations end, all devices learn all slots, and the acceptors have the last snapshot.

use holdoff_sim::kernel::{NodeId, World};

use super::{Checked, Violation};
use crate::Device;
use crate::machine::{Machine as _, Members};
use crate::simulation::node::{FIRST_DEVICE, Machine, acceptor_of, device_of};

/// Checks that every operation, device and acceptor has reached its end state.
pub(crate) fn check_recovery(world: &World<Machine>, devices: u32) -> Checked {
    for node in 0..world.nodes() {
        let host = world.node(node).and_then(Machine::host).ok_or(Violation::Down(node))?;
        if let Some(id) = host.waiting.first() {
            return Err(Violation::NeverEnded { node, id: *id });
        }
    }
    let honest = FIRST_DEVICE..FIRST_DEVICE + devices;
    let devices = || honest.clone().filter_map(|node| Some((node, device_of(world.node(node)?)?)));
    let latest = devices().map(|(_, device)| device.state().applied()).max().unwrap_or_default();
    for (node, device) in devices() {
        if let Some(id) = device.pending().next() {
            return Err(Violation::NeverEnded { node, id });
        }
        if device.unposted_mail().next().is_some() {
            return Err(Violation::UnpostedMail(node));
        }
        let applied = device.state().applied();
        if applied < latest {
            return Err(Violation::NotLearned { node, applied, latest });
        }
        if let Some(acceptor) = lacks_snapshot(world, device) {
            return Err(Violation::SnapshotMissing(acceptor));
        }
    }
    Ok(())
}

/// Returns an acceptor of the configuration that lacks the snapshot of the last compaction.
fn lacks_snapshot(world: &World<Machine>, device: &Device<Members>) -> Option<NodeId> {
    let (compacted, acceptors) = (device.state().compacted(), device.state().machine().acceptors());
    let lacks_it = |node: &NodeId| {
        let Some(machine) = world.node(*node) else { return true };
        let Some(host) = machine.host() else { return true };
        acceptors.contains_key(&host.id)
            && acceptor_of(machine).is_some_and(|acceptor| acceptor.floor() < compacted)
    };
    (0..FIRST_DEVICE).find(lacks_it)
}

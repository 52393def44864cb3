//! Durability: the mail of an applied operation is on the disk of at least one acceptor.

use holdoff_sim::kernel::{NodeId, World};

use super::{AtMostOnce, Checked, Violation};
use crate::OperationId;
use crate::simulation::node::{FIRST_DEVICE, Machine};

/// Checks the operations with mail at the end of the run.
pub(crate) fn check_mail(
    world: &World<Machine>,
    with_mail: impl Iterator<Item = OperationId>,
    applied: &AtMostOnce,
) -> Checked {
    for id in with_mail.filter(|id| applied.slot_of(id).is_some()) {
        // The disk, not the acceptor: an acceptor that has restarted reads its records at the next request.
        let has_mail = |node: NodeId| world.disk(node).is_some_and(|disk| disk.store.has_mail(&id));
        if !(0..FIRST_DEVICE).any(has_mail) {
            return Err(Violation::MailLost(id));
        }
    }
    Ok(())
}

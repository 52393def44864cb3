//! The oracle: it passes the reports of all devices to the properties.

use holdoff_sim::kernel::NodeId;

use super::properties::{Agreement, AtMostOnce, Checked, Outcomes};
use crate::Output;

#[derive(Default)]
pub(super) struct Oracle {
    pub(super) agreement: Agreement,
    pub(super) at_most_once: AtMostOnce,
    pub(super) outcomes: Outcomes,
}

impl Oracle {
    /// Checks an output of a device.
    pub(super) fn observe(&mut self, node: NodeId, output: &Output) -> Checked {
        match output {
            Output::Applied(applied) => {
                let operations: Vec<_> =
                    applied.operations.iter().map(|(done, result)| (done.id, result.is_ok())).collect();
                for (id, _) in operations.iter().filter(|(_, is_done)| *is_done) {
                    self.at_most_once.applied(*id, applied.slot)?;
                }
                self.agreement.applied(node, applied.slot, &operations)
            }
            Output::Ended { id, outcome } => {
                self.outcomes.ended(*id, outcome.clone());
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

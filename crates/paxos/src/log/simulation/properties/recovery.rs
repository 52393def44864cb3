//! Recovery: after healing, the voters decide soon, and reach the state of a leader that serves.

use holdoff_sim::kernel::World;

use super::Violation;
use crate::Slot;
use crate::log::simulation::machine::{Machine, name};

/// The maximum time from healing to the next decision: a few elections.
const MAX_RECOVERY_US: u64 = 4_000_000;
/// The minimum number of decided values in a run.
const MIN_VALUES: usize = 100;

/// The time of healing, and of the first decision after it.
#[derive(Default)]
pub(crate) struct Recovery {
    healed_us: Option<u64>,
    recovered_us: Option<u64>,
}

impl Recovery {
    pub(crate) fn healed(&mut self, now_us: u64) {
        self.healed_us = Some(now_us);
    }

    pub(crate) fn decided(&mut self, now_us: u64) {
        if self.healed_us.is_some() {
            self.recovered_us.get_or_insert(now_us);
        }
    }

    /// Checks the end of a run. Returns the time from healing to the next decision.
    pub(crate) fn check(&self, world: &World<Machine>, values: usize, last: Slot) -> Result<u64, Violation> {
        let machines = || (0..world.nodes()).filter_map(|node| Some((name(node), world.node(node)?)));
        let nodes =
            || machines().filter_map(|(name, it)| Some((name, it.core()?.node(), it.host()?.applied)));
        let (leader, leading, applied) =
            nodes().find(|(_, node, _)| node.is_ready()).ok_or(Violation::NoLeader)?;
        for (voter, _, theirs) in nodes() {
            if leading.store().configuration().contains(voter) && theirs != applied {
                return Err(Violation::VoterBehind { voter, leader, applied: [theirs, applied] });
            }
        }
        if applied.0 != last || values < MIN_VALUES {
            return Err(Violation::TooFewDecisions { values, applied: applied.0, last });
        }
        let times = self.recovered_us.zip(self.healed_us);
        let recovery_us = times.map(|(recovered_us, healed_us)| recovered_us.saturating_sub(healed_us));
        let in_time = recovery_us.filter(|recovery_us| *recovery_us <= MAX_RECOVERY_US);
        in_time.ok_or(Violation::LateDecision(recovery_us))
    }
}

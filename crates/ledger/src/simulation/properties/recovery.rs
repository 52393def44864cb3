//! Recovery: after healing, all nodes reach the state of a leader that serves, and the ledger continues to commit.

use holdoff_paxos::Slot;
use holdoff_sim::kernel::World;

use super::{Checked, Violation};
use crate::Ledger;
use crate::machine::KeyValue;
use crate::simulation::node::{SimulatedNode, TestNotary};

/// The minimum number of entries after healing.
const MIN_ENTRIES: u64 = 20;

/// The head of the history at the time of healing.
#[derive(Default)]
pub(crate) struct Recovery(Slot);

impl Recovery {
    pub(crate) fn healed(&mut self, head: Slot) {
        self.0 = head;
    }

    /// Checks the end of a run, with a history up to this head.
    pub(crate) fn check(&self, world: &World<SimulatedNode>, head: Slot) -> Checked {
        let ledgers = || (0..world.nodes()).filter_map(|node| Some(&***world.node(node)?.core()?));
        let states = || ledgers().map(show).collect::<Vec<_>>().join("\n");
        let Some(leader) = ledgers().find(|ledger| ledger.is_ready()) else {
            return Err(Violation::NoLeader(states()));
        };
        let (Self(healed_at), index) = (self, leader.state().index);
        if index != head || index.0 < healed_at.0 + MIN_ENTRIES {
            return Err(Violation::TooFewCommits { index, head, healed_at: *healed_at });
        }
        let head_of = |ledger: &Ledger<KeyValue, TestNotary>| (ledger.state().index, ledger.state().hash);
        match ledgers().find(|ledger| head_of(ledger) != head_of(leader)) {
            Some(other) => Err(Violation::NodeBehind { node: other.me, leader: leader.me, states: states() }),
            None => Ok(()),
        }
    }
}

fn show(ledger: &Ledger<KeyValue, TestNotary>) -> String {
    let store = ledger.store();
    format!(
        "{:?}: leader {:?}, voters {:?}, index {}, log to {} decided {}, promised {:?}, accepted {:?}, {:?}",
        ledger.me,
        ledger.leader(),
        ledger.state().voters(),
        ledger.state().index(),
        store.last(),
        store.decided(),
        store.promised(),
        store.accepted(),
        ledger.counts(),
    )
}

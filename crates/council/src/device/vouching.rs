//! Learning a decision from a later value that extends it.
//!
//! The author of a value has applied every slot before it, and signs the hash of the history up to there. So a
//! single value of a member for the next slot, accepted or not, shows the decision of this slot. This helps a
//! device that cannot count a majority of the acceptors that decided the slot, because they were replaced since or
//! have lost their disks. An acceptor cannot forge this proof: it cannot sign for a member.
//!
//! The proof holds only as long as no member proposes a value on top of an undecided one.

use holdoff_paxos::Slot;

use super::Device;
use crate::Value;
use crate::machine::Machine;

impl<M: Machine> Device<M> {
    /// Returns the value of the next slot, if a member has extended it.
    pub(super) fn vouched_for(&self, slot: Slot) -> Option<Value> {
        let later: Vec<_> = self.learning.accepted_in(slot.next()).collect();
        if later.is_empty() {
            return None;
        }
        let mut accepted = self.learning.accepted_in(slot);
        accepted.find(|value| later.iter().any(|later| self.goes_on_from(value, slot.next(), later))).cloned()
    }

    /// Returns whether the author of the later value is a member, as far as this device knows, and has built it on
    /// top of the earlier one.
    fn goes_on_from(&self, value: &Value, slot: Slot, later: &Value) -> bool {
        self.state.machine().may_propose(&later.author)
            && later.batch().is_some_and(|batch| batch.previous == self.state.chain_after(value))
            && later.is_signed(self.state.council(), slot, &*self.verifier)
    }
}

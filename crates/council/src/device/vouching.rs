//! Learning from what others go on from.
//!
//! Whoever puts a value together has carried out every slot before it, and signs what the history up to there
//! hashes to. So one value of a member's for the next slot, accepted or not, shows what was decided in this one. That
//! helps whoever cannot count a majority of those who decided it, because they were replaced since, or have lost
//! their disks. No acceptor can make this up: it cannot sign for a member.
//!
//! It holds only while nobody proposes anything on top of what is not decided yet.

use holdoff_paxos::Slot;

use super::Device;
use crate::Value;
use crate::machine::Machine;

impl<M: Machine> Device<M> {
    /// The value of the slot that is next, if a member has gone on from it.
    pub(super) fn vouched_for(&self, slot: Slot) -> Option<Value> {
        let later: Vec<_> = self.learning.accepted_in(slot.next()).collect();
        if later.is_empty() {
            return None;
        }
        let mut accepted = self.learning.accepted_in(slot);
        accepted.find(|value| later.iter().any(|later| self.goes_on_from(value, slot.next(), later))).cloned()
    }

    /// Whether one who is a member, as far as is known here, has put together this later value on top of that one.
    fn goes_on_from(&self, value: &Value, slot: Slot, later: &Value) -> bool {
        self.state.machine().may_propose(&later.author)
            && later.batch().is_some_and(|batch| batch.previous == self.state.chain_after(value))
            && later.is_signed(self.state.council(), slot, &*self.verifier)
    }
}

//! Recovery: in every state, once faults stop and messages arrive, a leader is elected and a proposal is decided.
//!
//! A model of bounded events cannot show this by itself: its paths end where its bounds are used up. Therefore each state
//! is continued without faults. The live nodes hear from each other and start elections in turn.

use super::state::{State, name};
use crate::log::{EntryPayload, Input};
use crate::{Configuration, Slot};

/// The number of elections that each node may start. An election fails if another node has promised a later term or has
/// entries that the candidate lacks; the refusal tells the candidate the term. After a configuration change the leader
/// must be elected again.
const ROUNDS: usize = 5;

impl State {
    /// Returns whether the live nodes can elect a leader that decides a proposal.
    pub(super) fn recovers(&self) -> bool {
        let mut healed = self.clone();
        healed.heal();
        if !healed.must_recover() {
            return true;
        }
        for _ in 0..ROUNDS {
            for at in 0..healed.nodes.len() {
                if healed.has_decided_a_proposal() {
                    return true;
                }
                healed.step(at, Input::Tick);
                healed.deliver();
            }
        }
        healed.has_decided_a_proposal()
    }

    /// Returns whether majorities of the last two decided configurations are alive. If only the last one is alive, all
    /// nodes that know of it may be lost.
    fn must_recover(&self) -> bool {
        let mut configurations = vec![self.first_voters().clone()];
        configurations.extend(self.decided.values().filter_map(|(_, entry)| match &entry.payload {
            EntryPayload::Configuration(voters) => Some(voters.clone()),
            _ => None,
        }));
        let is_alive = |voters: &Configuration| {
            let lost = self.lost.iter().filter(|at| voters.contains(name(**at))).count();
            voters.acceptors().len() - lost >= voters.majority()
        };
        configurations.iter().rev().take(2).all(is_alive)
    }

    /// Proposes a value at a leader that serves, and returns whether it is decided.
    fn has_decided_a_proposal(&mut self) -> bool {
        let alive = (0..self.nodes.len()).filter(|at| !self.lost.contains(at));
        let Some(leader) = alive.into_iter().find(|at| self.nodes[*at].is_ready()) else { return false };
        let before: Slot = self.nodes[leader].store().decided();
        self.step(leader, Input::Propose(u8::MAX));
        self.deliver();
        let store = self.nodes[leader].store();
        store.decided() > before
            && store.entry(store.decided()).is_some_and(|entry| entry.payload == EntryPayload::Value(u8::MAX))
    }
}

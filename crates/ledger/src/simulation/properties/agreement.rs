//! Agreement: all nodes have one history, and equal states at equal indexes.

use std::collections::BTreeMap;

use holdoff_paxos::{NodeId, Slot};

use super::{Checked, History, Violation};
use crate::machine::{KeyValue, Overlay, StateMachine as _};
use crate::simulation::node::TestNotary;
use crate::{Hash, Ledger, LogEntry, State};

/// The last observed head of each node.
#[derive(Default)]
pub(crate) struct Agreement(BTreeMap<NodeId, (Slot, Hash)>);

impl Agreement {
    /// Returns true if a node has another head than at the last observation.
    pub(crate) fn is_news(&mut self, node: NodeId, state: &State<KeyValue>) -> bool {
        let head = (state.index, state.hash);
        self.0.insert(node, head) != Some(head) && state.index != Slot(0)
    }

    /// Returns the entries that a node has applied and that are not in the history yet. The node must have all of them.
    pub(crate) fn new_entries<'l>(
        ledger: &'l Ledger<KeyValue, TestNotary>,
        history: &History,
    ) -> Result<impl Iterator<Item = &'l LogEntry<KeyValue>> + use<'l>, Violation> {
        let (node, index) = (ledger.me, ledger.state().index);
        let new = index.0.saturating_sub(history.head().0);
        let known = ledger.history.len().checked_sub(usize::try_from(new).unwrap());
        let known = known.ok_or(Violation::Gap { node, index })?;
        Ok(ledger.history.iter().skip(known))
    }

    /// Compares the state of a node with the history.
    pub(crate) fn check(node: NodeId, state: &State<KeyValue>, history: &History) -> Checked {
        let (index, found) = (state.index, state.machine.hash(&Overlay::default()));
        match history.row(index) {
            Some(row) if row.hash != state.hash => Err(Violation::OtherHistory { node, index }),
            Some(row) if row.state != found => Err(Violation::OtherState { node, index }),
            _ => Ok(()),
        }
    }
}

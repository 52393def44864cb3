//! A hostile node: requests that no device sends, from a stranger, a removed member or a lying member.

use holdoff_paxos::Ballot;
use holdoff_paxos::slot::Vote;
use holdoff_sim::kernel::{NodeId, SimRng, World};

use super::node::{FIRST_DEVICE, Hostile, Machine, TestSigner, council, device_id, device_of, key_of, send};
use crate::council_acceptor::MAX_ATTEMPT_JUMP;
use crate::{
    AcceptorRequest, AccessChange, Batch, CouncilSnapshot, Digest, Endorsement, OperationId, Slot, SlotValue,
};

/// The hostile node of a run.
pub(super) struct Attacker {
    node: NodeId,
    role: Hostile,
    /// The number of hostile requests so far. Those of a removed member count from its removal on.
    pub(super) requests: u64,
}

impl Attacker {
    pub(super) fn new(node: NodeId, role: Hostile) -> Self {
        Self { node, role, requests: 0 }
    }

    pub(super) fn name(&self) -> &'static str {
        match self.role {
            Hostile::Stranger => "requests of a stranger",
            Hostile::Removed => "requests of a removed one",
            Hostile::Lying => "lies of a member",
        }
    }

    /// Sends a hostile request to a random acceptor.
    ///
    /// A lying member only attacks what the members do not trust each other with: the history and the attempts. A removed
    /// member attacks an acceptor that knows of its removal.
    pub(super) fn attack(&mut self, world: &mut World<Machine>, rng: &mut SimRng) {
        let to = NodeId::try_from(rng.between(0, u64::from(FIRST_DEVICE) - 1)).unwrap_or(0);
        let is_excluded = world.disk(to).is_some_and(|disk| disk.store.excludes(&key_of(self.node)));
        let kinds = match self.role {
            Hostile::Lying => 3,
            _ if is_excluded => 9,
            _ => return,
        };
        let applied = (FIRST_DEVICE..self.node).filter_map(|node| device_of(world.node(node)?));
        let applied = applied.map(|device| device.state().applied()).max().unwrap_or_default();
        let kind = rng.between(0, kinds);
        for request in self.requests_of(kind, applied, rng) {
            self.requests += u64::from(send(world, self.node, to, request));
        }
    }

    fn requests_of(&self, kind: u64, applied: Slot, rng: &mut SimRng) -> Vec<AcceptorRequest> {
        let (me, key) = (device_id(self.node), key_of(self.node));
        let slot = Slot((applied.0 + rng.between(0, 3)).saturating_sub(1).max(1));
        let near = Ballot::new(slot, MAX_ATTEMPT_JUMP * rng.between(1, 5), me);
        let absurd = Ballot::new(slot, u64::MAX, me);
        let change = AccessChange { after: slot, added: vec![key], removed: Vec::new() };
        let batch =
            Batch { previous: Digest::default(), operations: Vec::new(), withdrawn: Vec::new(), nonce: 0 };
        let signer = TestSigner(key);
        let value = SlotValue::sign(council(), slot, &batch, Some(change), false, &signer).unwrap();
        let lie = CouncilSnapshot { slot: Slot(applied.0 + rng.between(1, 1000)), bytes: "nothing".into() };
        let endorsement = Endorsement::sign(council(), lie.slot, lie.digest(), Slot(0), &signer);
        let prepare = |ballot| AcceptorRequest::Prepare { slot, ballot, announce: Vec::new() };
        let vote = |ballot| Vote { ballot, value: value.clone() };
        match kind {
            0 => vec![prepare(near)],
            1 => vec![prepare(absurd)],
            2 | 3 => vec![
                AcceptorRequest::Endorse(endorsement),
                AcceptorRequest::Compact { snapshot: lie, certificate: vec![endorsement; 5] },
            ],
            4 => vec![AcceptorRequest::Accept { slot, ballot: near, value, next: None }],
            5 => vec![AcceptorRequest::Decided { slot, vote: vote(near) }],
            6 => vec![AcceptorRequest::Decided { slot, vote: vote(absurd) }],
            7 => vec![AcceptorRequest::Access { changes: value.signed_access(slot).into_iter().collect() }],
            8 => vec![AcceptorRequest::Fetch { after: applied }, AcceptorRequest::Snapshot { offered: None }],
            _ => {
                let id = OperationId(u128::from(self.requests).to_be_bytes());
                vec![AcceptorRequest::Post { id, to: key, message: "spam".into() }]
            }
        }
    }
}

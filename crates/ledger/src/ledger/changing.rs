//! Configuration changes, and their outcomes for the caller.

use holdoff_paxos::log::{self, Refusal, Term};
use holdoff_paxos::{Configuration, NodeId, Slot};

use super::{Ledger, Output};
use crate::certificate::Notary;
use crate::entry::{Logged, Replicated};

/// The maximum number of voters of a ledger. Every voter must store the decided entries, and a larger majority is no
/// safer.
pub const MAX_VOTERS: usize = 7;

/// The reason why the voters have not changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotChanged {
    /// Another node leads, or no leader is known. Nothing has changed.
    #[error("this node does not lead: ask {0:?}")]
    NotLeading(Option<NodeId>),
    /// This node leads but does not serve yet. Nothing has changed.
    #[error("this leader has only begun: ask again")]
    NotReady,
    /// Another change is in progress. Nothing has changed.
    #[error("the voters are being changed: ask again")]
    Changing,
    /// The change would add or remove more than one voter. Nothing has changed.
    #[error("one voter comes or goes at a time: ask for one after the other")]
    TooFar,
    /// The configuration is already active. Nothing has changed.
    #[error("these vote already")]
    Same,
    /// The configuration would have too many voters. Nothing has changed.
    #[error("{0} voters are too many: at most {MAX_VOTERS}; others can learn")]
    TooMany(usize),
    /// No majority of the current voters keeps the configuration certificate of the current configuration yet. Nothing
    /// has changed.
    #[error("the voters are too new for others to know of: ask again")]
    TooSoon,
    /// Too many entries are undecided. Nothing has changed.
    #[error("too much is undecided: ask again")]
    Full,
    /// Another leader has decided another entry at that index. Nothing has changed.
    #[error("another leader has decided otherwise: ask again")]
    Overtaken,
    /// The change may have happened, or may still happen: check the current voters.
    #[error("it is not known whether it happens: look who votes")]
    Unknown,
}

/// A configuration change that was requested at this node, and its progress.
#[derive(Default)]
pub(super) struct Changing {
    /// The configuration that this node is proposing in the current step.
    asked: Option<Configuration>,
    proposed: Option<Proposed>,
}

struct Proposed {
    to: Configuration,
    slot: Slot,
    term: Term,
    until_us: u64,
}

impl<M: Replicated, N: Notary> Ledger<M, N> {
    /// Handles a request to change the voters.
    pub(super) fn change(&mut self, to: Configuration) {
        self.lead();
        if let Err(why) = self.may_change(&to) {
            self.outputs.push(Output::NotChanged(to, why));
            return;
        }
        self.changing.asked = Some(to.clone());
        self.log(log::Input::Change(to));
    }

    fn may_change(&self, to: &Configuration) -> Result<(), NotChanged> {
        let many = to.acceptors().len();
        if many > MAX_VOTERS {
            return Err(NotChanged::TooMany(many));
        }
        if self.log.leads().is_none() {
            return Err(NotChanged::NotLeading(self.log.leader()));
        }
        if self.changing.proposed.is_some() {
            return Err(NotChanged::Changing);
        }
        if self.tenure.is_none() {
            return Err(NotChanged::NotReady);
        }
        if *to == self.state.voters {
            return Err(NotChanged::Same);
        }
        if !self.is_known_of() {
            return Err(NotChanged::TooSoon);
        }
        Ok(())
    }

    /// Records the slot and term of the requested change after the log has accepted it.
    pub(super) fn proposed(&mut self, slot: Slot, term: Term) {
        if let Some(to) = self.changing.asked.take() {
            let until_us = self.now_us.saturating_add(self.options.result_us);
            self.changing.proposed = Some(Proposed { to, slot, term, until_us });
        }
    }

    /// Handles a proposal that the log has rejected.
    pub(super) fn not_taken(&mut self, why: Refusal) {
        // The overlay contains a diff that the log rejected, so the leader builds it again.
        let Some(to) = self.changing.asked.take() else {
            self.tenure = None;
            return;
        };
        let why = match why {
            Refusal::NotLeading(leader) => NotChanged::NotLeading(leader),
            Refusal::NotReady | Refusal::HandingOver | Refusal::NoVoter(_) | Refusal::TooLate => {
                NotChanged::NotReady
            }
            Refusal::Changing => NotChanged::Changing,
            Refusal::TooFar => NotChanged::TooFar,
            Refusal::Full => NotChanged::Full,
        };
        self.outputs.push(Output::NotChanged(to, why));
    }

    /// Reports the outcome of a requested change when an entry is decided at its index.
    pub(super) fn end_change(&mut self, at: Slot, entry: &Logged<M>) {
        let Some(Proposed { to, slot, term, .. }) = self.changing.proposed.take_if(|it| it.slot <= at) else {
            return;
        };
        let output = if (slot, term) == (at, entry.term) {
            Output::Changed(to, slot)
        } else {
            Output::NotChanged(to, NotChanged::Overtaken)
        };
        self.outputs.push(output);
    }

    /// Ends a change whose result timeout has expired, or whose index the node has passed without its entry.
    pub(super) fn end_late_change(&mut self) {
        let (now_us, index) = (self.now_us, self.state.index);
        let late = |it: &mut Proposed| it.until_us <= now_us || it.slot <= index;
        if let Some(Proposed { to, .. }) = self.changing.proposed.take_if(late) {
            self.outputs.push(Output::NotChanged(to, NotChanged::Unknown));
        }
    }
}

//! Configuration changes, and their outcomes for the caller.

use holdoff_paxos::log::{self, Rejection, Term};
use holdoff_paxos::{Configuration, NodeId, Slot};

use super::{Ledger, Output};
use crate::certificate::Notary;
use crate::entry::{LogEntry, ReplicatedMachine};

/// The maximum number of voters of a ledger. Every voter must store the decided entries, and a larger majority is no
/// safer.
pub const MAX_VOTERS: usize = 7;

/// The reason why the voters have not changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// Another node leads, or no leader is known. Nothing has changed.
    #[error("this node does not lead: send the change to {0:?}")]
    NotLeading(Option<NodeId>),
    /// This node leads but does not serve yet. Nothing has changed.
    #[error("this leader does not serve yet: try again")]
    NotReady,
    /// Another change is in progress. Nothing has changed.
    #[error("another change of the voters is in progress: try again")]
    Changing,
    /// The change would add or remove more than one voter. Nothing has changed.
    #[error("a change adds or removes one voter: submit one change after the other")]
    MoreThanOneVoter,
    /// The configuration is already active. Nothing has changed.
    #[error("the configuration is already active")]
    Same,
    /// The configuration would have too many voters. Nothing has changed.
    #[error("{0} voters are too many: a ledger has at most {MAX_VOTERS}; add the other nodes as learners")]
    TooMany(usize),
    /// No majority of the current voters keeps the configuration certificate of the current configuration yet. Nothing
    /// has changed.
    #[error("no majority keeps the certificate of the current configuration yet: try again")]
    TooSoon,
    /// Too many entries are undecided. Nothing has changed.
    #[error("too many entries are undecided: try again")]
    Full,
    /// Another leader has decided another entry at that index. Nothing has changed.
    #[error("another leader has decided another entry at that index: try again")]
    Overtaken,
    /// The change may have happened, or may still happen: check the current voters.
    #[error("the outcome of the change is unknown: check the current voters")]
    Unknown,
}

/// A configuration change that was requested at this node, and its progress.
#[derive(Default)]
pub(super) struct Changing {
    /// The configuration that this node is proposing in the current step.
    requested: Option<Configuration>,
    proposed: Option<Proposed>,
}

struct Proposed {
    to: Configuration,
    slot: Slot,
    term: Term,
    until_us: u64,
}

impl<M: ReplicatedMachine, N: Notary> Ledger<M, N> {
    /// Handles a request to change the voters.
    pub(super) fn change(&mut self, to: Configuration) {
        self.lead();
        if let Err(why) = self.may_change(&to) {
            self.step.hold(Output::ChangeFailed(to, why));
            return;
        }
        self.changing.requested = Some(to.clone());
        self.log(log::Input::ChangeConfiguration(to));
    }

    fn may_change(&self, to: &Configuration) -> Result<(), ChangeError> {
        let many = to.acceptors().len();
        if many > MAX_VOTERS {
            return Err(ChangeError::TooMany(many));
        }
        if self.log.leads().is_none() {
            return Err(ChangeError::NotLeading(self.log.leader()));
        }
        if self.changing.proposed.is_some() {
            return Err(ChangeError::Changing);
        }
        if self.leader_state.is_none() {
            return Err(ChangeError::NotReady);
        }
        if *to == self.state.voters {
            return Err(ChangeError::Same);
        }
        if !self.is_certificate_kept_by_majority() {
            return Err(ChangeError::TooSoon);
        }
        Ok(())
    }

    /// Records the slot and term of the requested change after the log has accepted it.
    pub(super) fn proposed(&mut self, slot: Slot, term: Term) {
        if let Some(to) = self.changing.requested.take() {
            let until_us = self.now_us.saturating_add(self.options.result_us);
            self.changing.proposed = Some(Proposed { to, slot, term, until_us });
        }
    }

    /// Handles a proposal that the log has rejected.
    pub(super) fn handle_rejected_proposal(&mut self, why: Rejection) {
        // The overlay contains a diff that the log rejected, so the leader builds it again.
        let Some(to) = self.changing.requested.take() else {
            self.leader_state = None;
            return;
        };
        let why = match why {
            Rejection::NotLeading(leader) => ChangeError::NotLeading(leader),
            Rejection::NotReady
            | Rejection::Transferring
            | Rejection::NotAVoter(_)
            | Rejection::TransferTimedOut => ChangeError::NotReady,
            Rejection::Changing => ChangeError::Changing,
            Rejection::MoreThanOneVoter => ChangeError::MoreThanOneVoter,
            Rejection::Full => ChangeError::Full,
        };
        self.step.hold(Output::ChangeFailed(to, why));
    }

    /// Reports the outcome of a requested change when an entry is decided at its index.
    pub(super) fn end_change(&mut self, at: Slot, entry: &LogEntry<M>) {
        let Some(Proposed { to, slot, term, .. }) = self.changing.proposed.take_if(|it| it.slot <= at) else {
            return;
        };
        let output = if (slot, term) == (at, entry.term) {
            Output::Changed(to, slot)
        } else {
            Output::ChangeFailed(to, ChangeError::Overtaken)
        };
        self.step.hold(output);
    }

    /// Ends a change whose result timeout has expired, or whose index the node has passed without its entry.
    pub(super) fn end_late_change(&mut self) {
        let (now_us, index) = (self.now_us, self.state.index);
        let late = |it: &mut Proposed| it.until_us <= now_us || it.slot <= index;
        if let Some(Proposed { to, .. }) = self.changing.proposed.take_if(late) {
            self.step.hold(Output::ChangeFailed(to, ChangeError::Unknown));
        }
    }
}

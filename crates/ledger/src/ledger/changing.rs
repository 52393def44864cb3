//! Who votes from then on, and what became of whoever wanted that.

use holdoff_paxos::log::{self, Refusal, Term};
use holdoff_paxos::{Configuration, NodeId, Slot};

use super::{Ledger, Output};
use crate::certificate::Notary;
use crate::entry::{Logged, Replicated};

/// As many voters a ledger has at most: each of them must store what is decided, and a majority of more is no safer.
pub const MAX_VOTERS: usize = 7;

/// Why the voters are not changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotChanged {
    /// Another node leads, or nobody. Nothing has changed.
    #[error("this node does not lead: ask {0:?}")]
    NotLeading(Option<NodeId>),
    /// It leads, and does not serve yet. Nothing has changed.
    #[error("this leader has only begun: ask again")]
    NotReady,
    /// Another change is under way. Nothing has changed.
    #[error("the voters are being changed: ask again")]
    Changing,
    /// More than one would come or go. Nothing has changed.
    #[error("one voter comes or goes at a time: ask for one after the other")]
    TooFar,
    /// These vote already. Nothing has changed.
    #[error("these vote already")]
    Same,
    /// There would be too many. Nothing has changed.
    #[error("{0} voters are too many: at most {MAX_VOTERS}; others can learn")]
    TooMany(usize),
    /// A majority of those who vote now does not keep yet what shows others that they do. Nothing has changed.
    #[error("the voters are too new for others to know of: ask again")]
    TooSoon,
    /// Too much is undecided. Nothing has changed.
    #[error("too much is undecided: ask again")]
    Full,
    /// Another leader has put something else in its place. Nothing has changed.
    #[error("another leader has decided otherwise: ask again")]
    Overtaken,
    /// It may happen yet, or have happened: look who votes.
    #[error("it is not known whether it happens: look who votes")]
    Unknown,
}

/// A change that was asked for here, and where it stands.
#[derive(Default)]
pub(super) struct Changing {
    /// It is being proposed right now.
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
    /// Somebody wants others to vote.
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

    /// The log has taken something: the change, if one was asked for.
    pub(super) fn proposed(&mut self, slot: Slot, term: Term) {
        if let Some(to) = self.changing.asked.take() {
            let until_us = self.now_us.saturating_add(self.options.result_us);
            self.changing.proposed = Some(Proposed { to, slot, term, until_us });
        }
    }

    /// The log has not taken it.
    pub(super) fn not_taken(&mut self, why: Refusal) {
        // The overlay has what the log has not: it is made anew.
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

    /// Something is decided at a place: whoever waits for that place knows now.
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

    /// Ends what has waited too long, or whose place is not to be seen any more.
    pub(super) fn end_late_change(&mut self) {
        let (now_us, index) = (self.now_us, self.state.index);
        let late = |it: &mut Proposed| it.until_us <= now_us || it.slot <= index;
        if let Some(Proposed { to, .. }) = self.changing.proposed.take_if(late) {
            self.outputs.push(Output::NotChanged(to, NotChanged::Unknown));
        }
    }
}

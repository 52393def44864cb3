//! The tables in which a query looks for steps.

use crate::{Filter, StepState};

/// A set of steps that a query scans.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Table {
    /// Unfinished steps.
    Steps,
    /// Failed and conflicted steps, through an index of their own.
    Aside,
    /// Finished steps.
    Done,
}

impl Table {
    /// Returns the tables that can contain matching steps.
    pub(crate) fn of(filter: &Filter) -> Vec<Self> {
        let is_aside = |state: &StepState| matches!(state, StepState::Failed | StepState::Conflicted);
        let is_over = |state: &StepState| StepState::OVER.contains(state);
        let states = if filter.states.is_empty() { &StepState::ALL[..] } else { &filter.states };
        let live = if states.iter().all(|state| is_aside(state) || is_over(state)) {
            states.iter().any(is_aside).then_some(Self::Aside)
        } else {
            Some(Self::Steps)
        };
        let over = states.iter().any(is_over) && filter.stale_after.is_none();
        live.into_iter().chain(over.then_some(Self::Done)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_read_in_vain() {
        use StepState::{Cancelled, Conflicted, Failed, Ready, Succeeded};
        let of = |states: &[StepState]| Table::of(&Filter::states(states.iter().copied()));
        assert_eq!(of(&[]), [Table::Steps, Table::Done]);
        assert_eq!(of(&[Ready, Failed]), [Table::Steps]);
        assert_eq!(of(&[Failed, Conflicted]), [Table::Aside]);
        assert_eq!(of(&[Failed, Cancelled]), [Table::Aside, Table::Done]);
        assert_eq!(of(&[Succeeded]), [Table::Done]);
        assert_eq!(of(&StepState::ALL), [Table::Steps, Table::Done]);
    }
}

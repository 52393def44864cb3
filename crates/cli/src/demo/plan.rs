//! The schedule of events, which follows from the length of the run.

use std::time::Duration;

use super::target::Outage;

/// The period after which the schedule repeats.
pub(super) const ROUND: Duration = Duration::from_secs(60);

/// The schedule of events, relative to the start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// The outage of the mail service.
    pub(super) outage: Outage,
    /// The time in each round at which a worker is killed.
    pub(super) kill_at: Duration,
    /// The duration of the traffic, or `None` for a run without end.
    pub(super) lasts: Option<Duration>,
}

impl Plan {
    /// A run without end, repeated every minute.
    pub(super) const fn endless() -> Self {
        let outage = Outage { every: ROUND, from: Duration::from_secs(3), lasts: Duration::from_secs(20) };
        Self { outage, kill_at: Duration::from_secs(8), lasts: None }
    }

    /// A limited run, in which every event occurs once and ends in time.
    pub(super) fn once(lasts: Duration) -> Self {
        let outage = Outage { every: Duration::from_secs(86_400), from: lasts / 5, lasts: lasts / 3 };
        Self { outage, kill_at: (lasts / 2).min(Self::endless().kill_at), lasts: Some(lasts) }
    }
}

/// An action of the operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OperatorAction {
    /// Resolves one conflict with the right revision, after which the step continues.
    ResolveOne,
    /// Resolves all conflicts except the latest few.
    ResolveMost,
    /// Deploys the other version of the policies.
    Deploy { is_second: bool },
    /// Retries the failed steps.
    RetryFailed,
    /// Discards steps that failed long ago.
    DiscardOld,
    /// Resumes or pauses the newsletter queue.
    Newsletters { is_paused: bool },
}

/// The operator's actions in each round, by second.
const ACTIONS: [(u64, OperatorAction); 10] = [
    (4, OperatorAction::ResolveOne),
    (5, OperatorAction::Deploy { is_second: true }),
    (10, OperatorAction::RetryFailed),
    (14, OperatorAction::ResolveOne),
    (28, OperatorAction::ResolveOne),
    (35, OperatorAction::Deploy { is_second: false }),
    (40, OperatorAction::Newsletters { is_paused: false }),
    (46, OperatorAction::Newsletters { is_paused: true }),
    (52, OperatorAction::ResolveMost),
    (55, OperatorAction::DiscardOld),
];

/// Returns the operator's actions, without end.
pub(super) fn operator_actions() -> impl Iterator<Item = (Duration, OperatorAction)> + Send {
    rounds().flat_map(|begin| ACTIONS.map(|(second, action)| (begin + Duration::from_secs(second), action)))
}

/// Returns the start of each round, without end.
pub(super) fn rounds() -> impl Iterator<Item = Duration> + Send {
    (0_u32..).map(|round| ROUND * round)
}

/// A storm: many copies of the same signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Storm {
    pub(super) at: Duration,
    /// The machine that the signals report, from 0.
    pub(super) machine: u32,
}

/// The number of machines that have storms, in turn.
pub(super) const MACHINES: u32 = 6;
const FIRST_STORM: Duration = Duration::from_secs(2);
const STORM_EVERY: Duration = Duration::from_secs(10);

/// Returns all storms, without end.
pub(super) fn storms() -> impl Iterator<Item = Storm> + Send {
    (0_u32..).map(|number| Storm { at: FIRST_STORM + STORM_EVERY * number, machine: number % MACHINES })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_run_has_an_outage_and_a_killed_worker() {
        for seconds in [5, 6, 15, 60, 600] {
            let lasts = Duration::from_secs(seconds);
            let plan = Plan::once(lasts);
            assert!(plan.kill_at < lasts && plan.outage.from + plan.outage.lasts < lasts);
            assert!(plan.outage.is_on(plan.outage.from) && !plan.outage.is_on(lasts));
        }
    }

    #[test]
    fn the_operator_acts_in_order_and_reverts_its_changes() {
        let actions: Vec<_> = operator_actions().take(3 * ACTIONS.len()).collect();
        assert!(actions.is_sorted_by_key(|(at, _)| *at));
        let round: Vec<_> = ACTIONS.into_iter().map(|(_, action)| action).collect();
        let position = |wanted| round.iter().position(|action| *action == wanted).unwrap();
        assert!(
            position(OperatorAction::Deploy { is_second: true })
                < position(OperatorAction::Deploy { is_second: false })
        );
        let newsletters = |is_paused| position(OperatorAction::Newsletters { is_paused });
        assert!(newsletters(false) < newsletters(true), "a round ends in the state in which it began");
        assert!(round.contains(&OperatorAction::ResolveMost));
    }

    #[test]
    fn storms_rotate_over_the_machines() {
        let storms: Vec<_> = storms().take(8).collect();
        assert_eq!(storms[0].at, FIRST_STORM);
        assert_eq!(storms.iter().map(|storm| storm.machine).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 0, 1]);
        assert_eq!(storms[6].at, storms[0].at + ROUND);
    }
}

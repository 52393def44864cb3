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
pub(super) enum Deed {
    /// Resolves one conflict with the right revision, after which the step continues.
    ResolveOne,
    /// Resolves all conflicts except the latest few.
    ResolveMost,
    /// Deploys the other version of the policies.
    Publish { is_second: bool },
    /// Retries the failed steps.
    RetryFailed,
    /// Discards steps that failed long ago.
    DiscardOld,
    /// Resumes or pauses the newsletter queue.
    Newsletters { is_paused: bool },
}

/// The operator's actions in each round, by second.
const SHIFT: [(u64, Deed); 10] = [
    (4, Deed::ResolveOne),
    (5, Deed::Publish { is_second: true }),
    (10, Deed::RetryFailed),
    (14, Deed::ResolveOne),
    (28, Deed::ResolveOne),
    (35, Deed::Publish { is_second: false }),
    (40, Deed::Newsletters { is_paused: false }),
    (46, Deed::Newsletters { is_paused: true }),
    (52, Deed::ResolveMost),
    (55, Deed::DiscardOld),
];

/// Returns the operator's actions, without end.
pub(super) fn shifts() -> impl Iterator<Item = (Duration, Deed)> + Send {
    rounds().flat_map(|begin| SHIFT.map(|(second, deed)| (begin + Duration::from_secs(second), deed)))
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
    fn the_operator_works_in_order_and_undoes_what_must_not_pile_up() {
        let deeds: Vec<_> = shifts().take(3 * SHIFT.len()).collect();
        assert!(deeds.is_sorted_by_key(|(at, _)| *at));
        let round: Vec<_> = SHIFT.into_iter().map(|(_, deed)| deed).collect();
        let place = |wanted| round.iter().position(|deed| *deed == wanted).unwrap();
        assert!(place(Deed::Publish { is_second: true }) < place(Deed::Publish { is_second: false }));
        let newsletters = |is_paused| place(Deed::Newsletters { is_paused });
        assert!(newsletters(false) < newsletters(true), "they end as they began");
        assert!(round.contains(&Deed::ResolveMost));
    }

    #[test]
    fn storms_move_on_and_come_back_when_the_last_is_over() {
        let storms: Vec<_> = storms().take(8).collect();
        assert_eq!(storms[0].at, FIRST_STORM);
        assert_eq!(storms.iter().map(|storm| storm.machine).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 0, 1]);
        assert_eq!(storms[6].at, storms[0].at + ROUND);
    }
}

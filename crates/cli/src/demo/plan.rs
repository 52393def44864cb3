//! What happens when. All of it follows from how long the demo runs.

use std::time::Duration;

use super::target::Outage;

/// Everything comes again after so long.
pub(super) const ROUND: Duration = Duration::from_secs(60);

/// What happens when, counted from the start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// When the mail service is down.
    pub(super) outage: Outage,
    /// When a worker is killed.
    pub(super) kill_at: Duration,
    /// For how long there is traffic; without end, unless it is said.
    pub(super) lasts: Option<Duration>,
}

impl Plan {
    /// Without end: minute by minute.
    pub(super) const fn endless() -> Self {
        let outage = Outage { every: ROUND, from: Duration::from_secs(3), lasts: Duration::from_secs(20) };
        Self { outage, kill_at: Duration::from_secs(8), lasts: None }
    }

    /// For a while: everything happens once, and is over in time.
    pub(super) fn once(lasts: Duration) -> Self {
        let outage = Outage { every: Duration::from_secs(86_400), from: lasts / 5, lasts: lasts / 3 };
        Self { outage, kill_at: (lasts / 2).min(Self::endless().kill_at), lasts: Some(lasts) }
    }
}

/// What the operator does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Deed {
    /// Decides one conflict: with the right revision, the step goes on.
    ResolveOne,
    /// Decides all conflicts but the latest few.
    ResolveMost,
    /// Puts the other version of the policies in force.
    Publish { is_second: bool },
    /// Has what failed tried again.
    RetryFailed,
    /// Gives up what failed long ago.
    DiscardOld,
    /// Lets the newsletters go out, and holds them back again.
    Newsletters { is_paused: bool },
}

/// What the operator does in every round, by the second.
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

/// What the operator does, without end.
pub(super) fn shifts() -> impl Iterator<Item = (Duration, Deed)> + Send {
    rounds().flat_map(|begin| SHIFT.map(|(second, deed)| (begin + Duration::from_secs(second), deed)))
}

/// When each round begins.
pub(super) fn rounds() -> impl Iterator<Item = Duration> + Send {
    (0_u32..).map(|round| ROUND * round)
}

/// A storm: the same signal, again and again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Storm {
    pub(super) at: Duration,
    /// Which machine it is about, from 0.
    pub(super) machine: u32,
}

/// How many machines have storms, one after the other.
pub(super) const MACHINES: u32 = 6;
const FIRST_STORM: Duration = Duration::from_secs(2);
const STORM_EVERY: Duration = Duration::from_secs(10);

/// All storms, without end.
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

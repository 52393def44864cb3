//! A simulation of many contenders for one key under injected faults: the pure cores on a seeded event queue.
//!
//! Contenders run [`WaitState`](crate::wait::WaitState) and [`Validity`](crate::validity::Validity) on clocks of their
//! own; the store is a [`Row`](crate::row::Row). Requests and responses are lost or delayed. The store crashes and loses
//! its newest changes, is restored from a backup, and its clock is set. Processes crash, or are frozen for longer than their lease, between the check of their guard and a
//! write. A resource stores the highest token.
//!
//! A failing seed is printed with the command that replays it. `HOLDOFF_SEEDS` sets the number of runs.

mod contender;
mod network;
mod run;

use std::time::Duration;

use holdoff_testbed::Seeds;

use crate::Token;
use run::{RunStats, Simulation, SimulationPlan};

/// A defect that is injected into the store, or into the contenders' use of the cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mutant {
    None,
    /// A release frees the lock of any holder.
    ReleaseWithoutOwner,
    /// The store is read, then written without a comparison.
    TakeoverWithoutCompare,
    /// Tokens start again when a lock is released.
    TokenReset,
    /// Leases are measured by the wall clock of the requester.
    RemoteWallClock,
    /// Validity counts from the arrival of the response.
    ValidFromResponse,
    /// The validity of a grant that was read back counts from the last request, although an earlier one may be the
    /// granted one.
    ReadBackFromLatest,
    /// All contenders draw the same random number.
    PointJitter,
    /// A token is the number of grants, without the time.
    CountedTokens,
    /// A store that has lost its newest changes starts tokens above the known ones only.
    NoCeiling,
    /// A store that has lost its newest changes grants tokens that are ahead of its clock, which a restore repeats.
    TokensAheadOfClock,
    /// A store that has lost its newest changes grants locks at once.
    NoWaitAfterCrash,
    /// A store that has lost its newest changes keeps holders whose leases have expired.
    ExpiredHolderKept,
}

/// A violated property.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
enum Violation {
    #[error("{0} µs: contenders {1} and {2} both consider the lock valid")]
    TwoHolders(u64, usize, usize),
    #[error("token {0} was granted to two contenders")]
    TokenGrantedTwice(Token),
    #[error("token {new} was granted after {old}")]
    TokenDecreased { old: Token, new: Token },
    #[error("the lease of token {token} was renewed after {highest} was granted")]
    StaleRenewal { token: Token, highest: Token },
    #[error("the resource rejected a write of contender {0}, which held the lock")]
    HolderRejected(usize),
    #[error("two contenders wrote with token {0}")]
    TwoWritersWithOneToken(Token),
    #[error("a write with token {late} was accepted after one with {seen}")]
    LateWriteAccepted { late: Token, seen: Token },
    #[error("contender {0} gave up too early: {1}")]
    GaveUpTooEarly(usize, String),
    #[error("the run does not terminate")]
    NotTerminating,
    #[error("state is left behind: {0}")]
    LeftBehind(String),
}

/// The faults that occurred in one run.
#[derive(Clone, Copy, Default, Debug)]
struct FaultCounts {
    requests_lost: u32,
    responses_lost: u32,
    /// Requests that arrived after their sender had stopped waiting for a response.
    late: u32,
    crashed: u32,
    /// Holders that were frozen until their lease had expired.
    frozen: u32,
    skewed: u32,
    notifications_lost: u32,
    /// Crashes of the store that lost a grant.
    grants_lost: u32,
    /// Restores of a backup that lost a grant.
    restored: u32,
    /// Steps of the store's clock.
    clock_steps: u32,
}

impl FaultCounts {
    fn all(&self) -> [(&'static str, u32); 10] {
        [
            ("request lost", self.requests_lost),
            ("response lost", self.responses_lost),
            ("request late", self.late),
            ("crash", self.crashed),
            ("frozen past the lease", self.frozen),
            ("clock wrong", self.skewed),
            ("notification lost", self.notifications_lost),
            ("grant lost by the store", self.grants_lost),
            ("backup restored", self.restored),
            ("store clock set", self.clock_steps),
        ]
    }
}

/// The number of runs in which each fault occurred.
#[derive(Clone, Copy, Default, Debug)]
struct FaultCoverage([(&'static str, u64); 10]);

impl FaultCoverage {
    fn add(&mut self, faults: &FaultCounts) {
        for ((name, runs), (fault, count)) in self.0.iter_mut().zip(faults.all()) {
            *name = fault;
            *runs += u64::from(count > 0);
        }
    }

    fn assert_each_in_a_third_of(&self, runs: u64) {
        for (name, occurred) in self.0 {
            assert!(
                occurred * 3 >= runs,
                "{name} occurred in {occurred} of {runs} runs: expected at least a third"
            );
        }
    }
}

fn run(seed: u64, mutant: Mutant) -> Result<RunStats, Violation> {
    Simulation::new(SimulationPlan::of(seed), mutant).run()
}

#[test]
fn no_property_is_violated_under_any_seed() {
    let seeds = Seeds::new(400, 2000);
    let runs = seeds.count();
    let (mut coverage, mut total) = (FaultCoverage::default(), RunStats::default());
    for seed in seeds {
        match run(seed, Mutant::None) {
            Ok(stats) => {
                coverage.add(&stats.faults);
                total.add(&stats);
            }
            Err(violation) => {
                let replay = Seeds::replay(seed, "cargo test -p holdoff-lock --lib no_property_is_violated");
                panic!("seed {seed}: {violation}\n{:?}\n{replay}", SimulationPlan::of(seed));
            }
        }
    }
    println!("{runs} seeds: {total:?}\n{coverage:?}");
    if runs >= 100 {
        coverage.assert_each_in_a_third_of(runs);
        assert!(total.acquired > total.gave_up, "{total:?}");
        assert!(total.read_back > 0, "no lost grant was ever found again: {total:?}");
        assert!(total.refused_writes > 0, "no late write was ever refused: {total:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..20 {
        let [one, other] = [(), ()].map(|()| format!("{:?}", run(seed, Mutant::None)));
        assert_eq!(one, other, "seed {seed}");
    }
}

#[test]
fn without_faults_every_contender_is_served() {
    for seed in 0..100 {
        let plan = SimulationPlan::of(seed).without_faults();
        let wanted = u32::try_from(plan.contenders).unwrap() * plan.acquisitions;
        let stats = Simulation::new(plan, Mutant::None).run().unwrap();
        assert_eq!(
            (stats.acquired, stats.gave_up, stats.lost, stats.refused_writes),
            (wanted, 0, 0, 0),
            "seed {seed}"
        );
        assert_eq!(stats.writes, wanted * 3, "seed {seed}");
    }
}

/// Tests that every injected defect is detected.
mod mutants {
    use super::*;

    /// More seeds than the detection of any defect takes.
    const SEEDS: u64 = 1000;

    fn assert_detected(mutant: Mutant, is_expected: impl Fn(&Violation) -> bool) {
        let caught = (0..SEEDS).find_map(|seed| Some((seed, run(seed, mutant).err().filter(&is_expected)?)));
        let (seed, violation) = caught.unwrap_or_else(|| panic!("{mutant:?} is not caught by {SEEDS} seeds"));
        println!("{mutant:?}: caught by seed {seed}: {violation}");
    }

    fn falls(violation: &Violation) -> bool {
        matches!(violation, Violation::TokenDecreased { .. } | Violation::TokenGrantedTwice(_))
    }

    #[test]
    fn a_release_without_owner_check_is_detected() {
        assert_detected(Mutant::ReleaseWithoutOwner, |violation| {
            matches!(violation, Violation::TwoHolders(..))
        });
    }

    #[test]
    fn a_takeover_without_compare_is_detected() {
        assert_detected(Mutant::TakeoverWithoutCompare, |violation| {
            matches!(violation, Violation::TokenGrantedTwice(_))
        });
    }

    #[test]
    fn a_token_reset_after_release_is_detected() {
        assert_detected(Mutant::TokenReset, falls);
    }

    #[test]
    fn expiry_by_a_remote_wall_clock_is_detected() {
        assert_detected(Mutant::RemoteWallClock, |violation| matches!(violation, Violation::TwoHolders(..)));
    }

    #[test]
    fn validity_counted_from_the_response_is_detected() {
        assert_detected(Mutant::ValidFromResponse, |violation| {
            matches!(violation, Violation::TwoHolders(..))
        });
    }

    #[test]
    fn validity_counted_from_the_last_request_after_a_read_back_is_detected() {
        assert_detected(Mutant::ReadBackFromLatest, |violation| {
            matches!(violation, Violation::TwoHolders(..))
        });
    }

    #[test]
    fn tokens_that_count_grants_are_detected() {
        assert_detected(Mutant::CountedTokens, falls);
    }

    #[test]
    fn tokens_that_ignore_the_ceiling_are_detected() {
        assert_detected(Mutant::NoCeiling, falls);
    }

    #[test]
    fn tokens_ahead_of_the_clock_are_detected() {
        assert_detected(Mutant::TokensAheadOfClock, falls);
    }

    #[test]
    fn grants_at_once_after_a_crash_of_the_store_are_detected() {
        assert_detected(Mutant::NoWaitAfterCrash, |violation| matches!(violation, Violation::TwoHolders(..)));
    }

    #[test]
    fn an_expired_holder_kept_after_a_crash_of_the_store_is_detected() {
        assert_detected(Mutant::ExpiredHolderKept, |violation| {
            matches!(violation, Violation::StaleRenewal { .. })
        });
    }

    /// Returns the most requests within a millisecond after a holder with forty waiters was killed. Contenders with
    /// unlimited attempts are the worst case.
    fn burst(seed: u64, mutant: Mutant) -> u32 {
        let plan = SimulationPlan {
            contenders: 40,
            acquisitions: 1,
            lease: Duration::from_secs(10),
            // Equal delays to the store: different delays would hide missing randomness.
            fastest_us: 500,
            slowest_us: 500,
            ..SimulationPlan::of(seed).without_faults()
        };
        Simulation::new(plan, mutant).kill_holder_at(4_000_000).run().map_or(u32::MAX, |stats| stats.busiest)
    }

    #[test]
    fn jitter_clamped_to_a_point_is_detected() {
        let bursts = |mutant| (0..20).map(|seed| burst(seed, mutant)).collect::<Vec<_>>();
        let (spread, herd) = (bursts(Mutant::None), bursts(Mutant::PointJitter));
        println!("busiest milliseconds: {spread:?}, without rng: {herd:?}");
        assert!(spread.iter().all(|burst| *burst <= 8), "{spread:?}");
        assert!(herd.iter().any(|burst| *burst > 20), "{herd:?}");
    }
}

//! Strategies: the rules that decide about the next attempt.
//!
//! A strategy is either a real [`Policy`], through the same `decide` that production runs, or one of the classics that
//! the literature compares. The classics exist only in the lab, because they break the product's rules. They clamp the
//! *sample* at the cap, so that many clients end up with a delay of exactly the cap and the thundering herd is back.
//! They have no last attempt and ignore `Retry-After`.
//!
//! A proposer in a [`duel`](crate::scenario::duel) needs more than a delay: a [`ProposerRule`] of losing. In an
//! [`election`](crate::scenario::election) no client retries: the strategies are algorithms to find a leader ([`Algorithm`]).

use holdoff_policy::{
    Contention, Decision, Failure, GiveUpReason, Growth, InvalidPolicy, Jitter, Policy, RetryAfter, SoFar,
};
use std::time::Duration;

use crate::Micros;
use crate::scenario::election::Algorithm;

/// A named rule that decides about the next attempt.
#[derive(Clone, PartialEq, Debug)]
pub struct Strategy {
    name: String,
    rule: Rule,
}

/// The rule of a strategy.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Rule {
    /// A real policy.
    Policy(Box<Policy>),
    /// A classic, in the lab only.
    Classic(Classic),
    /// A policy whose proposer never rebuilds its proposal, in the lab only. Outside of a duel it is the policy.
    Stale(Box<Policy>),
    /// The council's rule: see [`ProposerRule::Council`].
    Council,
    /// A leader election algorithm. As a retry rule it gives up.
    Election(Algorithm),
}

/// The reaction of a proposer when a rival goes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProposerRule {
    /// Waits as its policy says, then proposes the same again for the same slot, decided or not.
    Stale,
    /// After a refusal, waits as its policy says. If a rival gets the slot, it rebuilds its proposal on the decided
    /// value.
    Rebuild,
    /// After a refusal, waits two measured round trips and up to one more; a decision learned meanwhile ends the wait.
    /// A slot that a rival got is not a failed attempt: the proposer rebuilds its proposal and continues at once.
    Council,
}

/// A textbook strategy. `v = min(cap, base × 2ⁿ)`, where n is the number of failures so far, 1 at the first failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Classic {
    /// The kind.
    pub kind: ClassicKind,
    /// The base of the growth.
    pub base: Micros,
    /// The value at which samples are clamped.
    pub cap: Micros,
}

/// The kinds of textbook strategies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClassicKind {
    /// Retries at once.
    None,
    /// Exactly `v`.
    Exponential,
    /// `U[0, v]`.
    Full,
    /// `v/2 + U[0, v/2]`.
    Equal,
    /// `min(cap, U[base, 3 × the previous delay])`.
    Decorrelated,
}

/// The decision after a failed attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StrategyDecision {
    /// Wait for this many microseconds, then make another attempt.
    Wait(u64),
    /// Stop, for this reason.
    GiveUp(GiveUpReason),
}

/// The lab's own strategies and their descriptions; the presets are available as well.
pub const LAB_STRATEGIES: [(&str, &str); 13] = [
    ("none", "retries at once"),
    ("exponential", "doubling from 5 ms to 2 s, no jitter"),
    ("full", "doubling with full jitter"),
    ("equal", "doubling with equal jitter"),
    ("decorrelated", "up to three times the previous delay, clamped"),
    ("contention", "full jitter, or spread by the number of contenders if it is known"),
    ("fixed", "every 100 ms"),
    ("retry-after", "waits exactly as long as Retry-After says"),
    ("retry-after-spread", "waits as long as Retry-After says, and up to five seconds longer"),
    ("linear", "10 ms more each time, no jitter, three retries"),
    ("linear-stale", "linear, with a proposer that never rebuilds its proposal"),
    ("proposal-stale", "the preset proposal, with a proposer that never rebuilds its proposal"),
    ("council", "two measured round trips and up to one more; a lost slot is not a failed attempt"),
];

/// The round trip that the council assumes if none was measured.
const USUAL_ROUND_TRIP_US: u64 = 50_000;

impl Strategy {
    /// Creates a strategy from a real policy.
    pub fn policy(name: impl Into<String>, policy: Policy) -> Self {
        Self { name: name.into(), rule: Rule::Policy(Box::new(policy)) }
    }

    /// Creates a strategy from a policy whose proposer never rebuilds its proposal.
    pub fn stale(name: impl Into<String>, policy: Policy) -> Self {
        Self { name: name.into(), rule: Rule::Stale(Box::new(policy)) }
    }

    /// Creates a strategy from a leader election algorithm, under its own name.
    pub fn election(algorithm: Algorithm) -> Self {
        Self { name: algorithm.name().to_owned(), rule: Rule::Election(algorithm) }
    }

    /// Creates a classic under its own name, with base 5 ms and cap 2 s.
    pub fn classic(kind: ClassicKind) -> Self {
        let (base, cap) = (Micros::from_millis(5), Micros::from_secs(2));
        Self { name: kind.name().to_owned(), rule: Rule::Classic(Classic { kind, base, cap }) }
    }

    /// Returns the strategy of this name: one of the [lab's](LAB_STRATEGIES), or a preset.
    pub fn named(name: &str) -> Option<Self> {
        if let Some(kind) = ClassicKind::ALL.into_iter().find(|kind| kind.name() == name) {
            return Some(Self::classic(kind));
        }
        let lab = match name {
            "contention" => contention(Contention::new(Duration::from_millis(15))),
            "fixed" => fixed(),
            "retry-after" => retry_after(Duration::ZERO),
            "retry-after-spread" => retry_after(Duration::from_secs(5)),
            "linear" => linear(),
            "linear-stale" => return linear().ok().map(|policy| Self::stale(name, policy)),
            "proposal-stale" => return Policy::preset("proposal").map(|policy| Self::stale(name, policy)),
            "council" => return Some(Self { name: name.to_owned(), rule: Rule::Council }),
            _ => return Policy::preset(name).map(|preset| Self::policy(name, preset)),
        };
        lab.ok().map(|policy| Self::policy(name, policy))
    }

    /// Creates the contention-aware strategy with this slot and limit.
    pub fn contention(rule: Contention) -> Result<Self, InvalidPolicy> {
        contention(rule).map(|policy| Self::policy("contention", policy))
    }

    /// Returns the name shown in tables.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the rule.
    pub fn rule(&self) -> &Rule {
        &self.rule
    }

    /// Decides after a failed attempt.
    #[inline]
    pub fn next(&self, so_far: &SoFar, failure: &Failure, roll: u32) -> StrategyDecision {
        match &self.rule {
            Rule::Policy(policy) | Rule::Stale(policy) => match policy.decide(so_far, failure, roll) {
                Decision::Retry { after } => StrategyDecision::Wait(Micros::from(after).0),
                Decision::Refresh => StrategyDecision::Wait(0),
                Decision::GiveUp(refusal) => StrategyDecision::GiveUp(refusal),
                _ => StrategyDecision::GiveUp(GiveUpReason::Permanent),
            },
            Rule::Classic(classic) => classic.next(so_far, roll),
            Rule::Council => within_deadline(so_far, council_wait_us(None, roll)),
            Rule::Election(_) => StrategyDecision::GiveUp(GiveUpReason::Permanent),
        }
    }

    /// Decides after a failed attempt of a caller that may have measured the round trip.
    pub(crate) fn next_after(
        &self,
        round_trip_us: Option<u64>,
        so_far: &SoFar,
        failure: &Failure,
        roll: u32,
    ) -> StrategyDecision {
        match self.rule {
            Rule::Council => within_deadline(so_far, council_wait_us(round_trip_us, roll)),
            _ => self.next(so_far, failure, roll),
        }
    }

    /// Returns the reaction of a proposer when a rival goes first.
    pub const fn proposer_rule(&self) -> ProposerRule {
        match self.rule {
            Rule::Policy(_) | Rule::Classic(_) | Rule::Election(_) => ProposerRule::Rebuild,
            Rule::Stale(_) => ProposerRule::Stale,
            Rule::Council => ProposerRule::Council,
        }
    }

    /// Returns the strategy without a limit of attempts.
    pub(crate) fn without_attempt_limit(&self) -> Self {
        let endless = |policy: &Policy| policy.to_builder().attempts(Policy::UNLIMITED).build().ok();
        let rule = match &self.rule {
            Rule::Policy(policy) => endless(policy).map(|policy| Rule::Policy(Box::new(policy))),
            Rule::Stale(policy) => endless(policy).map(|policy| Rule::Stale(Box::new(policy))),
            Rule::Classic(_) | Rule::Council | Rule::Election(_) => None,
        };
        Self { name: self.name.clone(), rule: rule.unwrap_or_else(|| self.rule.clone()) }
    }
}

impl ClassicKind {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::None, Self::Exponential, Self::Full, Self::Equal, Self::Decorrelated];

    /// Returns the name used in tables and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Exponential => "exponential",
            Self::Full => "full",
            Self::Equal => "equal",
            Self::Decorrelated => "decorrelated",
        }
    }
}

impl Classic {
    fn next(&self, so_far: &SoFar, roll: u32) -> StrategyDecision {
        let failures = so_far.attempt.get();
        let v = self.base.0.checked_shl(failures.min(40)).unwrap_or(u64::MAX).min(self.cap.0);
        let wait_us = match self.kind {
            ClassicKind::None => 0,
            ClassicKind::Exponential => v,
            ClassicKind::Full => pick(0, v, roll),
            ClassicKind::Equal => v / 2 + pick(0, v / 2, roll),
            ClassicKind::Decorrelated => {
                let previous = Micros::from(so_far.last_delay).0.max(self.base.0);
                pick(self.base.0, previous.saturating_mul(3), roll).min(self.cap.0)
            }
        };
        within_deadline(so_far, wait_us)
    }
}

/// Returns the wait, or gives up if it would end after the deadline.
fn within_deadline(so_far: &SoFar, wait_us: u64) -> StrategyDecision {
    let end = so_far.elapsed.saturating_add(Duration::from_micros(wait_us));
    match so_far.deadline {
        Some(deadline) if end > deadline => StrategyDecision::GiveUp(GiveUpReason::Deadline),
        _ => StrategyDecision::Wait(wait_us),
    }
}

/// Returns the council's wait. The rival needs two round trips to finish; the rest separates the proposers that wait
/// for it.
fn council_wait_us(round_trip_us: Option<u64>, roll: u32) -> u64 {
    let round_trip_us = round_trip_us.unwrap_or(USUAL_ROUND_TRIP_US);
    pick(round_trip_us.saturating_mul(2), round_trip_us.saturating_mul(3), roll)
}

/// Returns the value of `[low, high]` that this roll selects.
fn pick(low: u64, high: u64, roll: u32) -> u64 {
    let values = u128::from(high.saturating_sub(low)) + 1;
    low.saturating_add(u64::try_from((u128::from(roll) * values) >> 32).unwrap_or(u64::MAX))
}

/// If the count of contenders is unknown, the policy is full jitter like the classic.
fn contention(rule: Contention) -> Result<Policy, InvalidPolicy> {
    Policy::builder(Growth::exponential(Duration::from_millis(10), 2.0))
        .cap(Duration::from_secs(2))
        .jitter(Jitter::Full)
        .contention(rule)
        .attempts(Policy::UNLIMITED)
        .build()
}

fn fixed() -> Result<Policy, InvalidPolicy> {
    Policy::builder(Growth::constant(Duration::from_millis(100)))
        .jitter(Jitter::None)
        .attempts(Policy::UNLIMITED)
        .build()
}

/// The retry schedule of the source document's algorithm: 10, 20 and 30 ms, then it stops.
fn linear() -> Result<Policy, InvalidPolicy> {
    let step = Duration::from_millis(10);
    Policy::builder(Growth::linear(step, step)).jitter(Jitter::None).attempts(4).build()
}

/// The policy's own window stays below the delays that servers request, so that `Retry-After` decides.
fn retry_after(spread: Duration) -> Result<Policy, InvalidPolicy> {
    Policy::builder(Growth::exponential(Duration::from_millis(10), 2.0))
        .cap(Duration::from_millis(640))
        .retry_after(RetryAfter { spread, ..RetryAfter::default() })
        .attempts(Policy::UNLIMITED)
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(name: &str, so_far: &SoFar) -> (StrategyDecision, StrategyDecision) {
        let strategy = Strategy::named(name).unwrap();
        let at = |roll| strategy.next(so_far, &Failure::transient(), roll);
        (at(0), at(u32::MAX))
    }

    #[test]
    fn the_classics_match_the_textbook() {
        let third = SoFar::after(3);
        let wait = |low, high| (StrategyDecision::Wait(low), StrategyDecision::Wait(high));
        assert_eq!(ends("none", &third), wait(0, 0));
        assert_eq!(ends("exponential", &SoFar::after(1)), wait(10_000, 10_000));
        assert_eq!(ends("exponential", &third), wait(40_000, 40_000));
        assert_eq!(ends("exponential", &SoFar::after(u32::MAX)), wait(2_000_000, 2_000_000));
        assert_eq!(ends("full", &third), wait(0, 40_000));
        assert_eq!(ends("equal", &third), wait(20_000, 40_000));
        assert_eq!(ends("decorrelated", &SoFar::after(1)), wait(5_000, 15_000));
        let long = SoFar { last_delay: Duration::from_secs(1), ..third };
        assert_eq!(ends("decorrelated", &long), wait(5_000, 2_000_000));
    }

    #[test]
    fn linear_and_stale_strategies_have_their_fixed_waits() {
        let wait = |low, high| (StrategyDecision::Wait(low), StrategyDecision::Wait(high));
        for name in ["linear", "linear-stale"] {
            for attempts in 1..=3 {
                let us = u64::from(attempts) * 10_000;
                assert_eq!(ends(name, &SoFar::after(attempts)), wait(us, us));
            }
            assert_eq!(ends(name, &SoFar::after(4)).0, StrategyDecision::GiveUp(GiveUpReason::Exhausted));
        }
        assert_eq!(ends("proposal-stale", &SoFar::after(1)), wait(10_000, 15_000));
        assert_eq!(ends("proposal-stale", &SoFar::after(6)), wait(320_000, 480_000));
        assert_eq!(
            ends("proposal-stale", &SoFar::after(7)).0,
            StrategyDecision::GiveUp(GiveUpReason::Exhausted)
        );
    }

    #[test]
    fn the_council_waits_for_its_measured_round_trip() {
        let council = Strategy::named("council").unwrap();
        let at = |roll| council.next_after(Some(7_000), &SoFar::after(9), &Failure::transient(), roll);
        assert_eq!((at(0), at(u32::MAX)), (StrategyDecision::Wait(14_000), StrategyDecision::Wait(21_000)));
        assert_eq!(
            ends("council", &SoFar::after(9)),
            (StrategyDecision::Wait(100_000), StrategyDecision::Wait(150_000))
        );
    }

    #[test]
    fn every_name_is_known() {
        for (name, _) in LAB_STRATEGIES.iter().chain(&holdoff_policy::PRESETS) {
            assert_eq!(Strategy::named(name).unwrap().name(), *name);
        }
        assert_eq!(Strategy::named("nonsense"), None);
    }

    #[test]
    fn contention_without_a_count_is_full_jitter() {
        for attempts in [1, 2, 5, 9, 100] {
            assert_eq!(ends("contention", &SoFar::after(attempts)), ends("full", &SoFar::after(attempts)));
        }
    }
}

//! A policy: declared, validated and compiled.

use alloc::sync::Arc;
use core::ops::Deref;
use core::time::Duration;

use crate::compiled::{Compiled, compile, validate};
use crate::{Growth, InvalidPolicy, Jitter, RetryAfter};

/// The delays between attempts and their number.
///
/// Built by [`Policy::builder`], taken from a [preset](Policy::preset), or read from a file by
/// [`PolicySet`](crate::PolicySet). It dereferences to its compiled form, which decides: `policy.decide(…)`. A clone shares
/// the compiled form.
#[derive(Clone, PartialEq, Debug)]
pub struct Policy(Arc<Inner>);

#[derive(PartialEq, Debug)]
struct Inner {
    spec: Spec,
    compiled: Compiled,
}

/// The declared values.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Spec {
    pub(crate) growth: Growth,
    pub(crate) jitter: Jitter,
    /// `None`: the result of [`default_cap`].
    pub(crate) cap: Option<Duration>,
    pub(crate) attempts: u32,
    pub(crate) deadline: Option<Duration>,
    pub(crate) retry_after: RetryAfter,
    pub(crate) contention: Option<Contention>,
}

impl Policy {
    /// The default number of attempts.
    pub const DEFAULT_ATTEMPTS: u32 = 5;

    /// The default cap of a growing policy.
    pub const DEFAULT_CAP: Duration = Duration::from_secs(30);

    /// Unlimited attempts: `u32::MAX` of them. Combine it with a deadline unless the operation may retry for
    /// ever.
    pub const UNLIMITED: u32 = u32::MAX;

    /// Starts a policy with this growth, full jitter and five attempts.
    pub fn builder(growth: Growth) -> PolicyBuilder {
        PolicyBuilder {
            growth,
            jitter: Jitter::Full,
            cap: None,
            attempts: Self::DEFAULT_ATTEMPTS,
            deadline: None,
            retry_after: RetryAfter::default(),
            contention: None,
        }
    }

    /// Compiles a declaration that is known to be valid.
    pub(crate) fn from_valid(spec: Spec) -> Self {
        let compiled = compile(&spec);
        Self(Arc::new(Inner { spec, compiled }))
    }

    /// Returns the compiled form.
    pub fn compiled(&self) -> &Compiled {
        &self.0.compiled
    }

    /// Returns the growth of the ceiling.
    pub fn growth(&self) -> &Growth {
        &self.0.spec.growth
    }

    /// Returns the conversion of a ceiling into a window.
    pub fn jitter(&self) -> Jitter {
        self.0.spec.jitter
    }

    /// Returns the rule for `Retry-After`.
    pub fn retry_after(&self) -> RetryAfter {
        self.0.spec.retry_after
    }

    /// Returns the rule for contention.
    pub fn contention(&self) -> Option<Contention> {
        self.0.spec.contention
    }

    /// Returns a builder that starts from this policy.
    pub fn to_builder(&self) -> PolicyBuilder {
        let Spec { growth, jitter, cap, attempts, deadline, retry_after, contention } = self.0.spec.clone();
        PolicyBuilder { growth, jitter, cap, attempts, deadline, retry_after, contention }
    }

    /// Returns the cap, if the policy declares one.
    pub(crate) fn declared_cap(&self) -> Option<Duration> {
        self.0.spec.cap
    }

    /// Returns the same policy with unlimited attempts and without a deadline.
    pub(crate) fn without_end(&self) -> Self {
        Self::from_valid(Spec { attempts: Self::UNLIMITED, deadline: None, ..self.0.spec.clone() })
    }
}

impl Default for Policy {
    /// Returns the preset `standard`.
    fn default() -> Self {
        Self::standard()
    }
}

impl Deref for Policy {
    type Target = Compiled;

    #[inline]
    fn deref(&self) -> &Compiled {
        &self.0.compiled
    }
}

/// Builds a [`Policy`]; [`build`](Self::build) validates the result.
#[derive(Clone, Debug)]
#[must_use]
pub struct PolicyBuilder {
    growth: Growth,
    jitter: Jitter,
    cap: Option<Duration>,
    attempts: u32,
    deadline: Option<Duration>,
    retry_after: RetryAfter,
    contention: Option<Contention>,
}

impl PolicyBuilder {
    /// Sets the growth of the ceiling.
    pub fn growth(mut self, growth: Growth) -> Self {
        self.growth = growth;
        self
    }

    /// Sets the conversion of a ceiling into a window.
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// Sets the upper limit of all delays, except for `Retry-After` and contention.
    ///
    /// Without it, the cap is [`Policy::DEFAULT_CAP`] for a policy that grows. For a constant or a list it is
    /// the end of the widest window, so that no window is cut.
    pub fn cap(mut self, cap: Duration) -> Self {
        self.cap = Some(cap);
        self
    }

    /// Sets the number of attempts, the first included.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// Sets the time limit of the whole operation, all attempts and waits together.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets the rule for `Retry-After`.
    pub fn retry_after(mut self, rule: RetryAfter) -> Self {
        self.retry_after = rule;
        self
    }

    /// Sets the spread for a known number of contenders.
    pub fn contention(mut self, contention: Contention) -> Self {
        self.contention = Some(contention);
        self
    }

    /// Validates and compiles the policy.
    pub fn build(self) -> Result<Policy, InvalidPolicy> {
        let spec = self.into_spec();
        validate(&spec)?;
        Ok(Policy::from_valid(spec))
    }

    pub(crate) fn into_spec(self) -> Spec {
        let Self { growth, jitter, cap, attempts, deadline, retry_after, contention } = self;
        Spec { growth, jitter, cap, attempts, deadline, retry_after, contention }
    }
}

impl Spec {
    /// Returns the active cap.
    pub(crate) fn cap(&self) -> Duration {
        self.cap.unwrap_or_else(|| default_cap(&self.growth, self.jitter))
    }
}

/// Returns the default cap. A policy that cannot grow needs none, so its cap is the end of its widest window.
fn default_cap(growth: &Growth, jitter: Jitter) -> Duration {
    let Some(top) = growth.natural_top() else { return Policy::DEFAULT_CAP };
    let widest = match jitter {
        Jitter::Proportional(p) => 1.0 + p,
        Jitter::Scaled { high, .. } => high.max(1.0),
        Jitter::Additive(f) => 1.0 + f,
        Jitter::Decorrelated => 3.0,
        Jitter::None | Jitter::Full | Jitter::Equal => 1.0,
    };
    let in_range = (0.0..=Jitter::MAX_SHARE).contains(&widest);
    let us = if in_range { scaled_us(top, widest) } else { 0 };
    Duration::from_micros(us.max(crate::micros::saturating(top)))
}

/// Returns this share of a time, at most [`MAX_DELAY`](crate::MAX_DELAY).
fn scaled_us(time: Duration, share: f64) -> u64 {
    let ppm = u128::from(crate::jitter::to_ppm(share));
    let us = u128::from(crate::micros::saturating(time)) * ppm / u128::from(crate::micros::ONE_PPM);
    u64::try_from(us).unwrap_or(u64::MAX).min(crate::micros::MAX_DELAY_US)
}

/// The spread of the next attempt if the number of contenders is known.
///
/// The next attempt is uniform over `[0, min(limit, contenders × slot)]`. A good slot is slightly longer than
/// the work under contention.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Contention {
    /// The time slot of each contender.
    pub slot: Duration,
    /// The longest spread, for any number of contenders.
    pub limit: Duration,
}

impl Contention {
    /// The default limit of the spread.
    pub const DEFAULT_LIMIT: Duration = Duration::from_secs(60);

    /// Allots `slot` to each contender, within [`Self::DEFAULT_LIMIT`].
    pub const fn new(slot: Duration) -> Self {
        Self { slot, limit: Self::DEFAULT_LIMIT }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Attempt;

    const SECOND: Duration = Duration::from_secs(1);

    fn invalid(builder: PolicyBuilder) -> InvalidPolicy {
        builder.build().expect_err("must be refused")
    }

    fn exponential() -> PolicyBuilder {
        Policy::builder(Growth::exponential(SECOND, 2.0))
    }

    #[test]
    fn impossible_values_are_refused() {
        assert_eq!(invalid(exponential().attempts(0)), InvalidPolicy::NoAttempts);
        for factor in [0.0, -1.0, 0.99, f64::NAN, f64::INFINITY, 1000.1] {
            let refused = invalid(Policy::builder(Growth::exponential(SECOND, factor)));
            assert!(matches!(refused, InvalidPolicy::Factor(_)), "{factor}: {refused}");
        }
        let base_above_cap = InvalidPolicy::BaseAboveCap { base: SECOND, cap: SECOND / 2 };
        assert_eq!(invalid(exponential().cap(SECOND / 2)), base_above_cap);
        for p in [-0.1, 1.1, f64::NAN] {
            assert!(matches!(
                invalid(exponential().jitter(Jitter::Proportional(p))),
                InvalidPolicy::Share { .. }
            ));
        }
        let swapped = Jitter::Scaled { low: 1.5, high: 0.5 };
        assert_eq!(invalid(exponential().jitter(swapped)), InvalidPolicy::Swapped { low: 1.5, high: 0.5 });
        assert_eq!(invalid(Policy::builder(Growth::list([]))), InvalidPolicy::ListLength(0));
        assert_eq!(
            invalid(Policy::builder(Growth::exponential(Duration::ZERO, 2.0))),
            InvalidPolicy::Zero("base")
        );
        let fine = Duration::from_nanos(1500);
        assert_eq!(
            invalid(exponential().deadline(fine)),
            InvalidPolicy::TooFine { what: "deadline", value: fine }
        );
        let century = Duration::from_secs(100 * 365 * 86_400);
        assert_eq!(
            invalid(exponential().cap(century)),
            InvalidPolicy::TooLong { what: "cap", value: century }
        );
        let crawl = Growth::exponential(Duration::from_millis(1), 1.001);
        assert_eq!(invalid(Policy::builder(crawl)), InvalidPolicy::TooSlow { factor: 1.001 });
    }

    #[test]
    fn a_growth_with_an_end_is_not_cut_without_a_cap() {
        let policy =
            Policy::builder(Growth::constant(SECOND)).jitter(Jitter::Proportional(0.1)).build().unwrap();
        let window = policy.window(Attempt::FIRST, Duration::ZERO);
        assert_eq!((window.low(), window.high()), (SECOND * 9 / 10, SECOND * 11 / 10));
    }

    #[test]
    fn an_immediate_retry_can_be_declared() {
        let policy = Policy::builder(Growth::constant(Duration::ZERO)).build().unwrap();
        assert_eq!(policy.window(Attempt::FIRST, Duration::ZERO).high(), Duration::ZERO);
    }

    #[test]
    fn an_undeclared_cap_follows_the_growth() {
        let one = Policy::builder(Growth::constant(SECOND)).build().unwrap();
        let five = one.to_builder().growth(Growth::constant(SECOND * 5)).build().unwrap();
        assert_eq!(five.cap(), SECOND * 5);
    }

    #[test]
    fn a_rebuilt_policy_is_the_same() {
        let policy = exponential().jitter(Jitter::Additive(0.5)).build().unwrap();
        assert_eq!(policy.to_builder().build().unwrap(), policy);
    }
}

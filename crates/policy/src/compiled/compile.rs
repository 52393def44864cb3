//! Validates a policy and compiles it to integers.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::{Compiled, ContentionUs, DelayShape, MAX_TABLE, RetryAfterUs, around};
use crate::jitter::to_ppm;
use crate::micros::{ONE_PPM, saturating};
use crate::policy::Spec;
use crate::{Growth, Jitter, MAX_DELAY, Window};

/// Compiles a declared policy. A policy that was not validated compiles too, into a harmless one.
pub(crate) fn compile(spec: &Spec) -> Compiled {
    let (low_ppm, high_ppm) = spec.jitter.shares();
    let cap_us = saturating(spec.cap());
    let shape = shape(spec, highest_ceiling(cap_us, low_ppm, high_ppm));
    Compiled::assemble(
        spec.attempts,
        spec.deadline.map(saturating),
        spec.retry_after.into(),
        spec.contention.map(ContentionUs::from),
        (cap_us, low_ppm, high_ppm),
        shape,
    )
}

impl Compiled {
    /// Assembles valid parts and precomputes the windows of a table.
    pub(super) fn assemble(
        attempts: u32,
        deadline_us: Option<u64>,
        retry_after: RetryAfterUs,
        contention: Option<ContentionUs>,
        (cap_us, low_ppm, high_ppm): (u64, u32, u32),
        shape: DelayShape,
    ) -> Self {
        let windows: Vec<Window> = match &shape {
            DelayShape::Table(ceilings) => {
                ceilings.iter().map(|&us| around(us, low_ppm, high_ppm, cap_us)).collect()
            }
            DelayShape::Line { .. } | DelayShape::Decorrelated { .. } => Vec::new(),
        };
        let (last_window, windows) = (windows.len().saturating_sub(1), windows.into_boxed_slice());
        Self {
            attempts,
            deadline_us,
            retry_after,
            contention,
            cap_us,
            low_ppm,
            high_ppm,
            shape,
            windows,
            last_window,
        }
    }
}

/// Returns the highest ceiling under this cap.
///
/// A window that begins at its ceiling or above (additive jitter) would collapse to a point at the cap, and
/// all callers would wait exactly that long. Its ceiling therefore stays low enough for the whole window.
fn highest_ceiling(cap_us: u64, low_ppm: u32, high_ppm: u32) -> u64 {
    let begins_at_ceiling = u64::from(low_ppm) >= ONE_PPM && high_ppm > low_ppm;
    if !begins_at_ceiling {
        return cap_us;
    }
    let highest = u128::from(cap_us) * u128::from(ONE_PPM) / u128::from(high_ppm);
    u64::try_from(highest).unwrap_or(cap_us)
}

fn shape(spec: &Spec, top_us: u64) -> DelayShape {
    if spec.jitter == Jitter::Decorrelated {
        return DelayShape::Decorrelated { base_us: saturating(spec.growth.first()) };
    }
    let table = match &spec.growth {
        Growth::Exponential { base, factor, max_exponent } => {
            exponential(saturating(*base), *factor, max_exponent.unwrap_or(u32::MAX), top_us)
        }
        Growth::Linear { base, step } => {
            let (first_us, step_us) = (saturating(*base).min(top_us), saturating(*step));
            return DelayShape::Line { first_us, step_us, top_us };
        }
        Growth::Fibonacci { base } => fibonacci(saturating(*base), top_us),
        Growth::Constant { delay } => vec![saturating(*delay).min(top_us)],
        Growth::List { delays } => delays.iter().map(|delay| saturating(*delay).min(top_us)).collect(),
    };
    DelayShape::Table(table)
}

/// Returns `base × factorⁿ` up to the top, computed with 32 bits below the microsecond so that rounding
/// errors do not accumulate.
///
/// A result with one entry more than [`MAX_TABLE`] means that the growth is too slow for a table.
fn exponential(base_us: u64, factor: f64, max_exponent: u32, top_us: u64) -> Vec<u64> {
    const FRACTION_BITS: u32 = 32;
    let factor_ppm = u128::from(to_ppm(factor));
    let top = u128::from(top_us) << FRACTION_BITS;
    let mut exact = (u128::from(base_us) << FRACTION_BITS).min(top);
    let mut table = Vec::new();
    for _ in 0..=max_exponent {
        table.push(u64::try_from(exact >> FRACTION_BITS).unwrap_or(top_us));
        let grown = (exact * factor_ppm / u128::from(ONE_PPM)).min(top);
        if grown == exact || table.len() > MAX_TABLE {
            break;
        }
        exact = grown;
    }
    table
}

fn fibonacci(base_us: u64, top_us: u64) -> Vec<u64> {
    let mut table = Vec::new();
    let (mut this, mut next) = (base_us, base_us);
    while this < top_us {
        table.push(this);
        (this, next) = (next, this + next);
    }
    table.push(top_us);
    table
}

/// Rejects contradictory or out-of-range values.
pub(crate) fn validate(spec: &Spec) -> Result<(), InvalidPolicy> {
    if spec.attempts == 0 {
        return Err(InvalidPolicy::NoAttempts);
    }
    validate_growth(&spec.growth)?;
    validate_jitter(&spec.jitter)?;
    if spec.jitter == Jitter::Decorrelated {
        // Three times zero stays zero.
        at_least_a_microsecond("the first wait, under decorrelated jitter,", spec.growth.first())?;
    }
    at_least_a_microsecond("cap", spec.cap())
        .or_else(|zero| if spec.growth.natural_top() == Some(Duration::ZERO) { Ok(()) } else { Err(zero) })?;
    if spec.growth.first() > spec.cap() {
        return Err(InvalidPolicy::BaseAboveCap { base: spec.growth.first(), cap: spec.cap() });
    }
    if let Some(deadline) = spec.deadline {
        at_least_a_microsecond("deadline", deadline)?;
    }
    whole("retry_after.spread", spec.retry_after.spread)?;
    whole("retry_after.limit", spec.retry_after.limit)?;
    if let Some(contention) = spec.contention {
        at_least_a_microsecond("contention.slot", contention.slot)?;
        at_least_a_microsecond("contention.limit", contention.limit)?;
    }
    table_is_short_enough(spec)
}

fn table_is_short_enough(spec: &Spec) -> Result<(), InvalidPolicy> {
    let Growth::Exponential { factor, .. } = spec.growth else { return Ok(()) };
    match compile(spec).shape() {
        DelayShape::Table(ceilings) if ceilings.len() > MAX_TABLE => Err(InvalidPolicy::TooSlow { factor }),
        _ => Ok(()),
    }
}

fn validate_growth(growth: &Growth) -> Result<(), InvalidPolicy> {
    match growth {
        Growth::Exponential { base, factor, .. } => {
            if !(1.0..=1000.0).contains(factor) {
                return Err(InvalidPolicy::Factor(*factor));
            }
            at_least_a_microsecond("base", *base)
        }
        Growth::Linear { base, step } => {
            whole("base", *base)?;
            at_least_a_microsecond("step", *step)
        }
        Growth::Fibonacci { base } => at_least_a_microsecond("base", *base),
        Growth::Constant { delay } => whole("delay", *delay),
        Growth::List { delays } => {
            if delays.is_empty() || delays.len() > MAX_TABLE {
                return Err(InvalidPolicy::ListLength(delays.len()));
            }
            delays.iter().try_for_each(|delay| whole("an entry of the list", *delay))
        }
    }
}

fn validate_jitter(jitter: &Jitter) -> Result<(), InvalidPolicy> {
    match *jitter {
        Jitter::Proportional(p) => share("the proportional jitter", p, 1.0),
        Jitter::Scaled { low, high } => {
            share("the jitter's low share", low, Jitter::MAX_SHARE)?;
            share("the jitter's high share", high, Jitter::MAX_SHARE)?;
            if low > high { Err(InvalidPolicy::Swapped { low, high }) } else { Ok(()) }
        }
        Jitter::Additive(f) => share("the additive jitter", f, Jitter::MAX_SHARE - 1.0),
        Jitter::None | Jitter::Full | Jitter::Equal | Jitter::Decorrelated => Ok(()),
    }
}

fn share(what: &'static str, value: f64, most: f64) -> Result<(), InvalidPolicy> {
    if (0.0..=most).contains(&value) { Ok(()) } else { Err(InvalidPolicy::Share { what, value, most }) }
}

fn at_least_a_microsecond(what: &'static str, value: Duration) -> Result<(), InvalidPolicy> {
    if value.is_zero() {
        return Err(InvalidPolicy::Zero(what));
    }
    whole(what, value)
}

fn whole(what: &'static str, value: Duration) -> Result<(), InvalidPolicy> {
    if value > MAX_DELAY {
        return Err(InvalidPolicy::TooLong { what, value });
    }
    if !value.subsec_nanos().is_multiple_of(1_000) {
        return Err(InvalidPolicy::TooFine { what, value });
    }
    Ok(())
}

/// The reason why a policy is invalid. No policy was built; each message says what to change.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidPolicy {
    /// The number of attempts is zero.
    #[error("attempts is 0: the first attempt counts, so use at least 1")]
    NoAttempts,
    /// The factor is below 1, above 1000 or not a number.
    #[error("factor is {0}: use a number from 1 to 1000")]
    Factor(f64),
    /// A share of the ceiling is out of range.
    #[error("{what} is {value}: use a number from 0 to {most}")]
    Share {
        /// The name of the number.
        what: &'static str,
        /// The value.
        value: f64,
        /// The largest valid value.
        most: f64,
    },
    /// The scaled window's ends are swapped.
    #[error("the jitter's low share {low} is above its high share {high}: swap them")]
    Swapped {
        /// The low share.
        low: f64,
        /// The high share.
        high: f64,
    },
    /// The first ceiling exceeds the cap.
    #[error("base {base:?} is above the cap {cap:?}: raise the cap or lower the base")]
    BaseAboveCap {
        /// The first ceiling.
        base: Duration,
        /// The cap.
        cap: Duration,
    },
    /// The value is zero: a growth that starts at zero stays at zero.
    #[error("{0} is zero: use at least 1us")]
    Zero(&'static str),
    /// The duration is finer than a microsecond: delays are whole microseconds.
    #[error("{what} is {value:?}: use whole microseconds")]
    TooFine {
        /// The name of the duration.
        what: &'static str,
        /// The value.
        value: Duration,
    },
    /// The duration exceeds [`MAX_DELAY`](crate::MAX_DELAY).
    #[error("{what} is {value:?}: the longest duration in a policy is 365 days")]
    TooLong {
        /// The name of the duration.
        what: &'static str,
        /// The value.
        value: Duration,
    },
    /// The list is empty or too long.
    #[error("the list has {0} delays: use 1 to {MAX_TABLE}")]
    ListLength(usize),
    /// The growth is so slow that its table would be too long.
    #[error(
        "growth by {factor} does not reach the cap within {MAX_TABLE} attempts: use a larger factor, a max_exponent below {MAX_TABLE}, or linear growth"
    )]
    TooSlow {
        /// The factor.
        factor: f64,
    },
    /// The compiled form from outside is inconsistent.
    #[error("not a compiled policy: {0}")]
    Compiled(String),
}

//! Validates a declared policy.

use core::time::Duration;

use super::{MAX_TABLE, Shape, compile};
use crate::policy::Spec;
use crate::{Growth, Invalid, Jitter, MAX_DELAY};

/// Rejects contradictory or out-of-range values.
pub(crate) fn validate(spec: &Spec) -> Result<(), Invalid> {
    if spec.attempts == 0 {
        return Err(Invalid::NoAttempts);
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
        return Err(Invalid::BaseAboveCap { base: spec.growth.first(), cap: spec.cap() });
    }
    if let Some(deadline) = spec.deadline {
        at_least_a_microsecond("deadline", deadline)?;
    }
    whole("retry_after.spread", spec.retry_after.spread)?;
    whole("retry_after.limit", spec.retry_after.limit)?;
    if let Some(crowd) = spec.crowd {
        at_least_a_microsecond("crowd.slot", crowd.slot)?;
        at_least_a_microsecond("crowd.limit", crowd.limit)?;
    }
    table_is_short_enough(spec)
}

fn table_is_short_enough(spec: &Spec) -> Result<(), Invalid> {
    let Growth::Exponential { factor, .. } = spec.growth else { return Ok(()) };
    match compile(spec).shape() {
        Shape::Table(ceilings) if ceilings.len() > MAX_TABLE => Err(Invalid::TooSlow { factor }),
        _ => Ok(()),
    }
}

fn validate_growth(growth: &Growth) -> Result<(), Invalid> {
    match growth {
        Growth::Exponential { base, factor, .. } => {
            if !(1.0..=1000.0).contains(factor) {
                return Err(Invalid::Factor(*factor));
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
                return Err(Invalid::ListLength(delays.len()));
            }
            delays.iter().try_for_each(|delay| whole("an entry of the list", *delay))
        }
    }
}

fn validate_jitter(jitter: &Jitter) -> Result<(), Invalid> {
    match *jitter {
        Jitter::Proportional(p) => share("the proportional jitter", p, 1.0),
        Jitter::Scaled { low, high } => {
            share("the jitter's low share", low, Jitter::MAX_SHARE)?;
            share("the jitter's high share", high, Jitter::MAX_SHARE)?;
            if low > high { Err(Invalid::Swapped { low, high }) } else { Ok(()) }
        }
        Jitter::Additive(f) => share("the additive jitter", f, Jitter::MAX_SHARE - 1.0),
        Jitter::None | Jitter::Full | Jitter::Equal | Jitter::Decorrelated => Ok(()),
    }
}

fn share(what: &'static str, value: f64, most: f64) -> Result<(), Invalid> {
    if (0.0..=most).contains(&value) { Ok(()) } else { Err(Invalid::Share { what, value, most }) }
}

fn at_least_a_microsecond(what: &'static str, value: Duration) -> Result<(), Invalid> {
    if value.is_zero() {
        return Err(Invalid::Zero(what));
    }
    whole(what, value)
}

fn whole(what: &'static str, value: Duration) -> Result<(), Invalid> {
    if value > MAX_DELAY {
        return Err(Invalid::TooLong { what, value });
    }
    if !value.subsec_nanos().is_multiple_of(1_000) {
        return Err(Invalid::TooFine { what, value });
    }
    Ok(())
}

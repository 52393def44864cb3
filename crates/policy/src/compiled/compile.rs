//! Compiles a declared policy.

use alloc::vec;
use alloc::vec::Vec;

use super::{Compiled, CrowdUs, MAX_TABLE, RetryAfterUs, Shape, around};
use crate::jitter::to_ppm;
use crate::micros::{ONE_PPM, saturating};
use crate::policy::Spec;
use crate::{Growth, Jitter, Window};

/// Compiles a declared policy. A policy that was not validated compiles too, into a harmless one.
pub(crate) fn compile(spec: &Spec) -> Compiled {
    let (low_ppm, high_ppm) = spec.jitter.shares();
    let cap_us = saturating(spec.cap());
    let shape = shape(spec, highest_ceiling(cap_us, low_ppm, high_ppm));
    Compiled::assemble(
        spec.attempts,
        spec.deadline.map(saturating),
        spec.retry_after.into(),
        spec.crowd.map(CrowdUs::from),
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
        crowd: Option<CrowdUs>,
        (cap_us, low_ppm, high_ppm): (u64, u32, u32),
        shape: Shape,
    ) -> Self {
        let windows: Vec<Window> = match &shape {
            Shape::Table(ceilings) => {
                ceilings.iter().map(|&us| around(us, low_ppm, high_ppm, cap_us)).collect()
            }
            Shape::Line { .. } | Shape::Decorrelated { .. } => Vec::new(),
        };
        let (last_window, windows) = (windows.len().saturating_sub(1), windows.into_boxed_slice());
        Self {
            attempts,
            deadline_us,
            retry_after,
            crowd,
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

fn shape(spec: &Spec, top_us: u64) -> Shape {
    if spec.jitter == Jitter::Decorrelated {
        return Shape::Decorrelated { base_us: saturating(spec.growth.first()) };
    }
    let table = match &spec.growth {
        Growth::Exponential { base, factor, max_exponent } => {
            exponential(saturating(*base), *factor, max_exponent.unwrap_or(u32::MAX), top_us)
        }
        Growth::Linear { base, step } => {
            let (first_us, step_us) = (saturating(*base).min(top_us), saturating(*step));
            return Shape::Line { first_us, step_us, top_us };
        }
        Growth::Fibonacci { base } => fibonacci(saturating(*base), top_us),
        Growth::Constant { delay } => vec![saturating(*delay).min(top_us)],
        Growth::List { delays } => delays.iter().map(|delay| saturating(*delay).min(top_us)).collect(),
    };
    Shape::Table(table)
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

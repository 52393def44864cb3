//! Distributions of durations.

use serde::{Deserialize, Serialize};

use super::Chance;
use crate::Micros;

/// A distribution of durations: a network hop, or the service time of a request.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Latency {
    /// A constant duration.
    Constant(Micros),
    /// A uniform distribution between two durations.
    Uniform {
        /// The shortest duration.
        low: Micros,
        /// The longest duration.
        high: Micros,
    },
    /// The absolute value of a normal draw.
    Normal {
        /// The mean.
        mean: Micros,
        /// The standard deviation.
        sd: Micros,
    },
    /// An exponential (memoryless) distribution.
    Exponential {
        /// The mean.
        mean: Micros,
    },
}

impl Latency {
    /// Returns `|Normal(mean, sd)|` in milliseconds.
    pub const fn normal_ms(mean_ms: u64, sd_ms: u64) -> Self {
        Self::Normal { mean: Micros::from_millis(mean_ms), sd: Micros::from_millis(sd_ms) }
    }

    /// Returns whether every draw is zero.
    pub fn is_always_zero(&self) -> bool {
        let zero = Micros(0);
        match *self {
            Self::Constant(time) => time == zero,
            Self::Uniform { low, high } => low.max(high) == zero,
            Self::Normal { mean, sd } => mean.max(sd) == zero,
            Self::Exponential { mean } => mean == zero,
        }
    }

    /// Draws one duration, in whole microseconds.
    #[inline]
    pub fn draw_us(&self, chance: &mut Chance) -> u64 {
        match *self {
            Self::Constant(time) => time.0,
            Self::Uniform { low, high } => chance.between(low.0, high.0),
            Self::Normal { mean, sd } => whole(chance.normal(mean.as_f64(), sd.as_f64()).abs()),
            Self::Exponential { mean } => whole(chance.exponential(mean.as_f64())),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative; the cast saturates"
)]
fn whole(us: f64) -> u64 {
    (us + 0.5) as u64
}

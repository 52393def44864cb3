//! Random numbers that are identical on every machine.
//!
//! All numbers are made of raw 64-bit draws and of `+ − × ÷ √`, which IEEE 754 specifies to the last bit. The
//! platform's `ln` and similar functions are not used: their last bit differs from machine to machine.

use fastrand::Rng;

/// The random number stream of one actor, eight bytes in size.
///
/// A stream depends only on the seed and the actor. The draws of other actors, and their times, do not change it.
#[derive(Clone, Debug)]
pub struct SimRng(Rng);

impl SimRng {
    /// Returns the stream of this actor under this seed.
    pub fn of(seed: u64, actor: u64) -> Self {
        Self(Rng::with_seed(mix(seed, actor)))
    }

    /// Draws a number from all of `u32`, as [`decide`](holdoff_policy::Compiled::decide) expects it.
    pub fn roll(&mut self) -> u32 {
        u32::try_from(self.draw() >> 32).unwrap_or(u32::MAX)
    }

    /// Draws a number between 0 and 1, both excluded.
    #[expect(clippy::cast_precision_loss, reason = "52 bits and a half fit into a double exactly")]
    pub fn unit(&mut self) -> f64 {
        const STEP: f64 = 1.0 / (1_u64 << 52) as f64;
        ((self.draw() >> 12) as f64 + 0.5) * STEP
    }

    /// Returns whether an event of this probability occurs.
    pub fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.unit() < probability
    }

    /// Draws an integer from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        let values = u128::from(high.saturating_sub(low)) + 1;
        let offset = (u128::from(self.draw()) * values) >> 64;
        low.saturating_add(u64::try_from(offset).unwrap_or(u64::MAX))
    }

    /// Draws from the normal distribution.
    pub fn normal(&mut self, mean: f64, sd: f64) -> f64 {
        mean + sd * normal_quantile(self.unit())
    }

    /// Draws from the exponential distribution.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * ln(self.unit())
    }

    fn draw(&mut self) -> u64 {
        self.0.u64(..)
    }
}

/// Combines two numbers into one that depends on every bit of both: the finaliser of `splitmix64`, twice.
pub fn mix(seed: u64, actor: u64) -> u64 {
    finish(finish(seed.wrapping_add(0x9E37_79B9_7F4A_7C15)) ^ actor.wrapping_mul(0xD1B5_4A32_D192_ED03))
}

fn finish(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// Returns the quantile of the normal distribution, by Acklam's rational approximation (relative error 1.2e-9).
fn normal_quantile(p: f64) -> f64 {
    const TAIL: f64 = 0.024_25;
    if p < TAIL {
        return tail_quantile((-2.0 * ln(p)).sqrt());
    }
    if p > 1.0 - TAIL {
        return -tail_quantile((-2.0 * ln(1.0 - p)).sqrt());
    }
    let q = p - 0.5;
    let r = q * q;
    let above = [
        2.506_628_277_459_239,
        -3.066_479_806_614_716e1,
        1.383_577_518_672_69e2,
        -2.759_285_104_469_687e2,
        2.209_460_984_245_205e2,
        -3.969_683_028_665_376e1,
    ];
    let below = [
        1.0,
        -1.328_068_155_288_572e1,
        6.680_131_188_771_972e1,
        -1.556_989_798_598_866e2,
        1.615_858_368_580_409e2,
        -5.447_609_879_822_406e1,
    ];
    q * polynomial(above, r) / polynomial(below, r)
}

fn tail_quantile(q: f64) -> f64 {
    let above = [
        2.938_163_982_698_783,
        4.374_664_141_464_968,
        -2.549_732_539_343_734,
        -2.400_758_277_161_838,
        -3.223_964_580_411_365e-1,
        -7.784_894_002_430_293e-3,
    ];
    let below = [
        1.0,
        3.754_408_661_907_416,
        2.445_134_137_142_996,
        3.224_671_290_700_398e-1,
        7.784_695_709_041_462e-3,
        0.0,
    ];
    polynomial(above, q) / polynomial(below, q)
}

/// Evaluates a polynomial with the coefficient of each power, from the zeroth. It evaluates in pairs, so that the
/// processor need not wait for one term before it begins the next.
#[inline]
fn polynomial(coefficients: [f64; 6], x: f64) -> f64 {
    let [c0, c1, c2, c3, c4, c5] = coefficients;
    let square = x * x;
    (c0 + c1 * x) + square * ((c2 + c3 * x) + square * (c4 + c5 * x))
}

/// Returns the natural logarithm of a positive normal number, by the series of `2 artanh((m − 1) / (m + 1))`.
fn ln(x: f64) -> f64 {
    const MANTISSA: u64 = (1 << 52) - 1;
    const ONE: u64 = 1023 << 52;
    let bits = x.to_bits();
    let mut exponent = f64::from(u32::try_from(bits >> 52).unwrap_or(0)) - 1023.0;
    let mut mantissa = f64::from_bits((bits & MANTISSA) | ONE);
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa /= 2.0;
        exponent += 1.0;
    }
    let t = (mantissa - 1.0) / (mantissa + 1.0);
    let odd = [21.0, 19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0];
    let series = odd.iter().fold(0.0, |sum, n| sum * t * t + 1.0 / n);
    exponent * std::f64::consts::LN_2 + 2.0 * t * series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_matches_std() {
        for x in [1e-300, 1e-16, 0.1, 0.5, 0.999_999, 1.0, 1.5, 2.0, 1e10] {
            assert!((ln(x) - x.ln()).abs() <= 1e-14 * x.ln().abs().max(1.0), "{x}");
        }
    }

    #[test]
    fn normal_samples_have_the_known_quantiles() {
        for (p, z) in [(0.5, 0.0), (0.975, 1.959_963_985), (0.001, -3.090_232_306), (0.02, -2.053_748_911)] {
            assert!((normal_quantile(p) - z).abs() < 1e-8, "{p}");
        }
    }

    #[test]
    fn samples_have_the_expected_moments() {
        let mut rng = SimRng::of(7, 0);
        let draws: Vec<f64> = (0..100_000).map(|_| rng.normal(10.0, 2.0)).collect();
        let mean = draws.iter().sum::<f64>() / 1e5;
        let variance = draws.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 1e5;
        assert!((mean - 10.0).abs() < 0.03 && (variance - 4.0).abs() < 0.08, "{mean} {variance}");
        let exponential = (0..100_000).map(|_| rng.exponential(3.0)).sum::<f64>() / 1e5;
        assert!((exponential - 3.0).abs() < 0.04, "{exponential}");
    }

    #[test]
    fn a_stream_depends_on_its_seed_and_actor_alone() {
        let first: Vec<u32> = {
            let mut rng = SimRng::of(1, 2);
            (0..4).map(|_| rng.roll()).collect()
        };
        assert_eq!(first, [343_267_031, 4_279_134_663, 1_911_008_193, 3_728_772_814], "the same for ever");
        assert_ne!(SimRng::of(1, 3).roll(), SimRng::of(1, 2).roll());
        assert_ne!(SimRng::of(2, 2).roll(), SimRng::of(1, 2).roll());
    }

    #[test]
    fn both_ends_are_drawn() {
        let mut rng = SimRng::of(0, 0);
        let draws: Vec<u64> = (0..200).map(|_| rng.between(3, 5)).collect();
        assert!([3, 4, 5].iter().all(|value| draws.contains(value)));
        assert!(draws.iter().all(|value| (3..=5).contains(value)));
        assert_eq!(rng.between(9, 9), 9);
    }
}

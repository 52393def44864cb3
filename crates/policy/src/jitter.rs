//! The conversion of a ceiling into a window.

use crate::micros::ONE_PPM;

/// The conversion of the ceiling `d` of a wait into the window from which the wait is drawn.
///
/// The window is cut at the cap: no delay exceeds the cap, and all values inside the window are equally
/// likely.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
#[non_exhaustive]
pub enum Jitter {
    /// Always `d`. Callers that failed together retry together.
    None,
    /// `[0, d]`.
    #[default]
    Full,
    /// `[d/2, d]`.
    Equal,
    /// `[d − p·d, d + p·d]`, `p` from 0 to 1.
    Proportional(f64),
    /// `[low·d, high·d]`.
    Scaled {
        /// The smallest share of `d`.
        low: f64,
        /// The largest share of `d`.
        high: f64,
    },
    /// `[d, d + f·d]`; `d` is limited so that the whole window stays below the cap.
    Additive(f64),
    /// `[base, 3 × the last delay]`: grows by itself, so factor and exponent have no effect.
    Decorrelated,
}

impl Jitter {
    /// The largest ratio of a window's end to its ceiling.
    pub const MAX_SHARE: f64 = 1000.0;

    /// Returns the word used in the policy file.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Full => "full",
            Self::Equal => "equal",
            Self::Proportional(_) => "proportional",
            Self::Scaled { .. } => "scaled",
            Self::Additive(_) => "additive",
            Self::Decorrelated => "decorrelated",
        }
    }

    /// Returns the window's ends as millionths of the ceiling. The jitter must be valid.
    pub(crate) fn shares(&self) -> (u32, u32) {
        let whole = 1_000_000;
        match *self {
            Self::None | Self::Decorrelated => (whole, whole),
            Self::Full => (0, whole),
            Self::Equal => (whole / 2, whole),
            Self::Proportional(p) => (whole - to_ppm(p), whole + to_ppm(p)),
            Self::Scaled { low, high } => (to_ppm(low), to_ppm(high)),
            Self::Additive(f) => (whole, whole + to_ppm(f)),
        }
    }
}

/// Converts a share or factor to millionths, rounded to the nearest. The number must be between 0 and
/// [`Jitter::MAX_SHARE`].
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "0 ≤ share ≤ 1000, so the product is a small positive number"
)]
pub(crate) fn to_ppm(share: f64) -> u32 {
    (share * ONE_PPM as f64 + 0.5) as u32
}

//! The presets: named policies that need no configuration.

use core::time::Duration;

use crate::{Beyond, Growth, Jitter, Policy, PolicyBuilder, RetryAfter};

/// The name and purpose of each preset, in the order of listings.
pub const PRESETS: [(&str, &str); 11] = [
    ("standard", "calls to a service, without a waiting user"),
    ("aggressive", "calls that a user waits for"),
    ("conservative", "calls from mobile devices, or to fragile services"),
    ("background", "sync and batch jobs that may take a minute"),
    ("step", "steps of durable work, retried over crashes"),
    ("proposal", "votes lost to a rival, over a local network"),
    ("lock", "waiting for a lock that is held for a second or so"),
    ("lock-aggressive", "waiting for a lock that is held very briefly"),
    ("lock-conservative", "waiting for a lock behind a busy API server"),
    ("notification", "notifications about failures"),
    ("contended", "many writers of one row, of unknown number"),
];

impl Policy {
    /// Returns the preset of this name, if there is one.
    ///
    /// ```
    /// use holdoff_policy::{Policy, PRESETS};
    ///
    /// assert_eq!(Policy::preset("proposal").map(|policy| policy.attempts()), Some(7));
    /// assert!(PRESETS.iter().all(|(name, _)| Policy::preset(name).is_some()));
    /// ```
    pub fn preset(name: &str) -> Option<Self> {
        Some(Self::from_valid(preset(name)?.into_spec()))
    }

    /// Returns the default policy: the preset `standard`. It is compiled once in a process; without `std`, at each call.
    pub fn standard() -> Self {
        let compile = || Self::from_valid(call(1000, 30, 5).into_spec());
        #[cfg(feature = "std")]
        {
            static STANDARD: std::sync::OnceLock<Policy> = std::sync::OnceLock::new();
            STANDARD.get_or_init(compile).clone()
        }
        #[cfg(not(feature = "std"))]
        compile()
    }
}

fn preset(name: &str) -> Option<PolicyBuilder> {
    Some(match name {
        "standard" => call(1000, 30, 5),
        "aggressive" => call(500, 10, 5),
        "conservative" => call(2000, 30, 5),
        "background" => call(2000, 60, 7),
        "step" => step(),
        "proposal" => proposal(),
        "lock" => lock(100, 2.0, 1000, 0.1),
        "lock-aggressive" => lock(50, 3.0, 500, 0.2),
        "lock-conservative" => lock(200, 1.5, 5000, 0.1),
        "notification" => notification(),
        "contended" => contended(),
        _ => return None,
    })
}

fn call(base_ms: u64, cap_secs: u64, attempts: u32) -> PolicyBuilder {
    Policy::builder(Growth::exponential(Duration::from_millis(base_ms), 2.0))
        .jitter(Jitter::Scaled { low: 0.5, high: 1.5 })
        .cap(Duration::from_secs(cap_secs))
        .retry_after(RetryAfter { spread: Duration::from_secs(5), ..RetryAfter::default() })
        .attempts(attempts)
}

fn step() -> PolicyBuilder {
    let minute = Duration::from_secs(60);
    Policy::builder(Growth::list([1, 2, 4, 8, 16, 32, 60].map(Duration::from_secs)))
        .jitter(Jitter::Proportional(0.1))
        .cap(minute)
        .retry_after(RetryAfter { limit: minute, beyond: Beyond::Clip, ..RetryAfter::default() })
        .attempts(8)
}

fn proposal() -> PolicyBuilder {
    let base = Duration::from_millis(10);
    Policy::builder(Growth::Exponential { base, factor: 2.0, max_exponent: Some(6) })
        .jitter(Jitter::Additive(0.5))
        .cap(Duration::from_secs(1))
        .attempts(7)
}

fn lock(base_ms: u64, factor: f64, cap_ms: u64, p: f64) -> PolicyBuilder {
    Policy::builder(Growth::exponential(Duration::from_millis(base_ms), factor))
        .jitter(Jitter::Proportional(p))
        .cap(Duration::from_millis(cap_ms))
        .attempts(10)
}

fn notification() -> PolicyBuilder {
    Policy::builder(Growth::exponential(Duration::from_secs(30), 2.0))
        .jitter(Jitter::Proportional(0.1))
        .cap(Duration::from_secs(300))
        .attempts(5)
}

/// The result of a search in the lab: slower growth than doubling, from about the duration of a round.
fn contended() -> PolicyBuilder {
    Policy::builder(Growth::exponential(Duration::from_millis(75), 1.35))
        .jitter(Jitter::Full)
        .cap(Duration::from_secs(2))
        .attempts(20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_valid() {
        for (name, _) in PRESETS {
            let valid = preset(name).map(PolicyBuilder::build);
            assert_eq!(valid, Policy::preset(name).map(Ok), "{name}");
        }
        assert_eq!(Policy::preset("standard"), Some(Policy::standard()));
        assert_eq!(Policy::preset("nonsense"), None);
    }
}

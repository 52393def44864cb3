//! The parameters that a seed determines.

use std::sync::Arc;
use std::time::Duration;

use holdoff_policy::Policy;
use holdoff_sim::kernel::Chance;

/// The parameters and fault rates of a run.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) contenders: usize,
    /// The number of acquisitions of each contender.
    pub(super) acquisitions: u32,
    pub(super) lease: Duration,
    pub(super) policy: Arc<Policy>,
    pub(super) fastest_us: u64,
    pub(super) slowest_us: u64,
    pub(super) loses_request: f64,
    pub(super) loses_answer: f64,
    pub(super) loses_word: f64,
    /// The probability that a message arrives long after its sender has stopped waiting.
    pub(super) is_late: f64,
    /// The probability that an acquisition ends in a crash.
    pub(super) crashes: f64,
    /// The probability that a write is delayed between the check of the guard and the write.
    pub(super) freezes: f64,
    pub(super) wrong_clocks: bool,
}

impl Plan {
    pub(super) fn of(seed: u64) -> Self {
        let mut chance = Chance::of(seed, u64::MAX);
        let lease = Duration::from_millis(chance.between(500, 10_000));
        // In some runs nearly every message is lost: only then do unlikely sequences occur.
        let is_dreadful = chance.happens(0.2);
        let mut rate = |worst: f64| if chance.happens(0.8) { chance.unit() * worst } else { 0.0 };
        let worst = if is_dreadful { 0.7 } else { 0.15 };
        let (loses_request, loses_answer, loses_word) = (rate(worst), rate(worst), rate(0.5));
        let (is_late, crashes, freezes) = (rate(0.1), rate(0.3), rate(0.4));
        let policy = match chance.between(0, 3) {
            0 => Policy::preset("lock").unwrap(),
            1 => Policy::preset("lock-aggressive").unwrap(),
            _ => crate::Settings::default().with_lease(lease * 2).policy(),
        };
        Self {
            seed,
            contenders: usize::try_from(chance.between(2, 8)).unwrap(),
            acquisitions: u32::try_from(chance.between(1, 5)).unwrap(),
            lease,
            policy: Arc::new(policy),
            fastest_us: chance.between(50, 2_000),
            slowest_us: chance.between(2_000, 50_000),
            loses_request,
            loses_answer,
            loses_word,
            is_late,
            crashes,
            freezes,
            wrong_clocks: chance.happens(0.8),
        }
    }

    /// Returns the same plan without faults, and with time for every contender's turn.
    pub(super) fn without_faults(mut self) -> Self {
        (self.loses_request, self.loses_answer, self.loses_word) = (0.0, 0.0, 0.0);
        (self.is_late, self.crashes, self.freezes, self.wrong_clocks) = (0.0, 0.0, 0.0, false);
        let patient =
            self.policy.to_builder().attempts(Policy::UNLIMITED).deadline(Duration::from_secs(86_400));
        self.policy = Arc::new(patient.build().unwrap());
        self
    }
}

//! Computes the waits of a policy.

use alloc::vec::Vec;
use core::time::Duration;

use crate::compiled::DelayShape;
use crate::{Attempt, Policy, Window};

/// The waits that a policy can grant, and their totals.
#[derive(Clone, PartialEq, Debug)]
pub struct Explanation {
    /// The waits: one after each attempt but the last, at most [`MAX_WAITS`](Self::MAX_WAITS).
    pub waits: Vec<Wait>,
    /// Whether the policy has more waits than listed.
    pub more: bool,
    /// The total of all waits, listed or not; `None` if the attempts are unlimited.
    pub total: Option<Total>,
    /// The largest number of waits that fit before the deadline: the calls take no time and every wait is as
    /// short as possible. Without a deadline, all waits.
    pub possible: u32,
}

/// The total of several waits, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Total {
    /// The smallest total.
    pub low_us: u64,
    /// The largest total.
    pub high_us: u64,
    /// The mean total.
    pub mean_us: u64,
}

impl Total {
    /// Adds this many waits of the same window and mean.
    fn plus(self, window: Window, mean_us: u64, times: u64) -> Self {
        let add = |sum: u64, each: u64| sum.saturating_add(each.saturating_mul(times));
        Self {
            low_us: add(self.low_us, window.low_us()),
            high_us: add(self.high_us, window.high_us()),
            mean_us: add(self.mean_us, mean_us),
        }
    }
}

/// The wait after one attempt, if all calls fail at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait {
    /// The attempt before this wait.
    pub attempt: Attempt,
    /// The window of the wait; with decorrelated jitter, the widest possible window.
    pub window: Window,
    /// The mean wait, in microseconds.
    pub mean_us: u64,
    /// The shortest possible total up to and including this wait.
    pub total_low_us: u64,
    /// The longest possible total up to and including this wait.
    pub total_high_us: u64,
}

impl Explanation {
    /// The largest number of listed waits.
    pub const MAX_WAITS: u32 = 100;
}

/// After this many attempts the growth is assumed to be constant, which bounds the computation.
const MOST_WALKED: u32 = 100_000;

impl Policy {
    /// Returns every wait that this policy can grant to an operation that keeps failing, without regard to
    /// its deadline.
    ///
    /// The figures are exact to the microsecond, except for the mean of a decorrelated wait whose window has
    /// reached the cap: that is integrated numerically, to about one part in a thousand.
    pub fn explain(&self) -> Explanation {
        let waits = self.attempts().saturating_sub(1);
        let (mut listed, mut total, mut means) = (Vec::new(), Total::default(), Means::of(self));
        let mut best = BestCase::of(self);
        let mut last: Option<(Window, u64)> = None;
        for attempt in (1..=waits).map(Attempt::new) {
            let window = self.window(attempt, last.map_or(Duration::ZERO, |(window, _)| window.high()));
            let mean_us = means.next(window);
            best.wait(self, attempt);
            total = total.plus(window, mean_us, 1);
            let Total { low_us: total_low_us, high_us: total_high_us, .. } = total;
            if attempt.get() <= Explanation::MAX_WAITS {
                listed.push(Wait { attempt, window, mean_us, total_low_us, total_high_us });
            } else if last == Some((window, mean_us)) || attempt.get() > MOST_WALKED {
                // From here on all waits are equal.
                let rest = waits - attempt.get();
                total = total.plus(window, mean_us, u64::from(rest));
                best.waits_alike(self, attempt, rest);
                break;
            }
            last = Some((window, mean_us));
        }
        Explanation {
            waits: listed,
            more: waits > Explanation::MAX_WAITS,
            total: (self.attempts() != Self::UNLIMITED).then_some(total),
            possible: best.possible,
        }
    }
}

/// Counts the waits that fit before the deadline in the best case.
struct BestCase {
    left_us: Option<u64>,
    last_delay: Duration,
    possible: u32,
    is_over: bool,
}

impl BestCase {
    fn of(policy: &Policy) -> Self {
        let left_us = policy.deadline().map(crate::micros::saturating);
        Self { left_us, last_delay: Duration::ZERO, possible: 0, is_over: false }
    }

    fn wait(&mut self, policy: &Policy, attempt: Attempt) {
        let window = policy.window(attempt, self.last_delay);
        self.is_over |= self.left_us.is_some_and(|left| window.cut(left).is_none());
        if self.is_over {
            return;
        }
        self.possible = self.possible.saturating_add(1);
        self.last_delay = window.low();
        self.left_us = self.left_us.map(|left| left.saturating_sub(window.low_us()));
    }

    /// Adds this many waits, all equal to the wait after this attempt.
    fn waits_alike(&mut self, policy: &Policy, attempt: Attempt, count: u32) {
        let window = policy.window(attempt, self.last_delay);
        let in_time = match self.left_us {
            _ if self.is_over => 0,
            None => count,
            Some(left) if window.low_us() == 0 => u32::from(window.cut(left).is_some()).saturating_mul(count),
            Some(left) => {
                let room = left.saturating_sub(window.mean_us()).div_ceil(window.low_us());
                u32::try_from(room).unwrap_or(u32::MAX).min(count)
            }
        };
        self.possible = self.possible.saturating_add(in_time);
    }
}

/// Computes the means of successive waits.
enum Means {
    /// The delay is uniform over the window.
    Middle,
    /// The window depends on the previous delay: decorrelated jitter.
    Walk(Walk),
}

impl Means {
    fn of(policy: &Policy) -> Self {
        match policy.shape() {
            DelayShape::Decorrelated { base_us } => Self::Walk(Walk::new(*base_us, policy.cap())),
            _ => Self::Middle,
        }
    }

    fn next(&mut self, window: Window) -> u64 {
        match self {
            Self::Middle => window.mean_us(),
            Self::Walk(walk) => walk.step(),
        }
    }
}

/// The distribution of a decorrelated delay, as a histogram between base and cap.
struct Walk {
    base: f64,
    cap: f64,
    bins: Vec<f64>,
    /// The exact mean, until a delay can have reached the cap.
    free: Option<f64>,
    widest: f64,
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive and far below 2^53"
)]
impl Walk {
    const BINS: usize = 4096;

    fn new(base_us: u64, cap: Duration) -> Self {
        let (base, cap) = (base_us as f64, cap.as_micros() as f64);
        let mut bins = alloc::vec![0.0; Self::BINS];
        if let Some(first) = bins.first_mut() {
            *first = 1.0;
        }
        Self { base, cap, bins, free: Some(base), widest: base }
    }

    fn step(&mut self) -> u64 {
        self.widest *= 3.0;
        self.free =
            self.free.filter(|_| self.widest <= self.cap).map(|mean| f64::midpoint(self.base, 3.0 * mean));
        self.spread();
        (self.free.unwrap_or_else(|| self.binned_mean()) + 0.5) as u64
    }

    /// Distributes each bin's mass evenly over `[base, min(cap, 3 × its middle)]`.
    fn spread(&mut self) {
        let bins = Self::BINS as f64;
        let width = ((self.cap - self.base) / bins).max(f64::MIN_POSITIVE);
        let starts_at_base = self.widest <= self.base * 3.0;
        // All ranges begin at the base: record each mass at the end of its range, then sum from the far end.
        let mut ends = alloc::vec![0.0; Self::BINS + 1];
        let mut next = alloc::vec![0.0; Self::BINS + 1];
        for (index, mass) in self.bins.iter().enumerate().filter(|(_, mass)| **mass > 0.0) {
            let middle = if starts_at_base { self.base } else { self.base + (index as f64 + 0.5) * width };
            let reach = (((3.0 * middle).min(self.cap) - self.base) / width).clamp(1.0, bins);
            let whole = reach as usize;
            if let Some(end) = ends.get_mut(whole) {
                *end += mass / reach;
            }
            if let Some(bin) = next.get_mut(whole) {
                *bin += mass * (reach - whole as f64) / reach;
            }
        }
        let mut density = 0.0;
        for (bin, end) in next.iter_mut().zip(&ends).rev() {
            *bin += density;
            density += end;
        }
        next.truncate(Self::BINS);
        self.bins = next;
    }

    fn binned_mean(&self) -> f64 {
        let width = (self.cap - self.base) / Self::BINS as f64;
        let weighted = |(index, mass): (usize, &f64)| mass * (self.base + (index as f64 + 0.5) * width);
        self.bins.iter().enumerate().map(weighted).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Growth, Jitter};

    fn totals_ms(name: &str) -> (u64, u64, u64) {
        let total = Policy::preset(name).unwrap().explain().total.unwrap();
        (total.low_us / 1000, total.high_us / 1000, total.mean_us / 1000)
    }

    #[test]
    fn the_presets_total_waits_match_the_arithmetic() {
        assert_eq!(totals_ms("proposal"), (630, 945, 787));
        assert_eq!(totals_ms("lock"), (5850, 6650, 6250));
        assert_eq!(totals_ms("standard"), (7500, 22_500, 15_000));
        assert_eq!(totals_ms("step"), (110_700, 129_300, 120_000));
    }

    #[test]
    fn one_attempt_has_no_wait_and_unlimited_attempts_are_not_all_listed() {
        let policy = Policy::builder(Growth::constant(Duration::from_secs(1)));
        assert_eq!(policy.clone().attempts(1).build().unwrap().explain().waits, []);
        let endless = policy.attempts(Policy::UNLIMITED).build().unwrap().explain();
        assert_eq!((endless.waits.len(), endless.more, endless.total), (100, true, None));
    }

    /// For every policy, the best case equals a schedule of the smallest rolls.
    #[test]
    fn the_best_case_is_that_of_the_smallest_rolls() {
        let ms = Duration::from_millis;
        let growths = [
            Growth::constant(ms(1000)),
            Growth::exponential(ms(100), 2.0),
            Growth::linear(ms(10), ms(10)),
            Growth::fibonacci(ms(50)),
        ];
        for growth in growths {
            for jitter in
                [Jitter::None, Jitter::Equal, Jitter::Scaled { low: 0.5, high: 1.5 }, Jitter::Decorrelated]
            {
                for (attempts, deadline) in [(3, 1000), (10, 5_000), (500, 200_000), (1000, 600_000), (5, 1)]
                {
                    let builder = Policy::builder(growth.clone()).jitter(jitter).cap(ms(3_600_000));
                    let policy = builder.attempts(attempts).deadline(ms(deadline)).build().unwrap();
                    let counted = policy.schedule(|| 0).count();
                    assert_eq!(policy.explain().possible as usize, counted, "{policy:?}");
                }
            }
        }
    }

    #[test]
    fn totals_count_every_wait_listed_or_not() {
        let second = Duration::from_secs(1);
        let policy = Policy::builder(Growth::constant(second)).jitter(Jitter::Equal);
        let total = policy.attempts(1_000_001).build().unwrap().explain().total.unwrap();
        let seconds = 1_000_000_000_000;
        assert_eq!(total, Total { low_us: seconds / 2, high_us: seconds, mean_us: seconds / 4 * 3 });
        let line = Policy::builder(Growth::linear(second, second)).jitter(Jitter::None).cap(second * 600);
        let total = line.attempts(501).build().unwrap().explain().total.unwrap();
        assert_eq!(total.high_us, 500 * 501 / 2 * 1_000_000);
    }

    #[test]
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    fn decorrelated_means_agree_with_a_million_walks() {
        let policy = Policy::builder(Growth::constant(Duration::from_millis(5)))
            .jitter(Jitter::Decorrelated)
            .cap(Duration::from_millis(500))
            .attempts(9)
            .build()
            .unwrap();
        let mut rng = fastrand::Rng::with_seed(7);
        let mut sums = [0.0; 8];
        let walks = 200_000;
        for _ in 0..walks {
            for (sum, delay) in sums.iter_mut().zip(policy.schedule(|| rng.u32(..))) {
                *sum += delay.as_micros() as f64;
            }
        }
        for (wait, sum) in policy.explain().waits.iter().zip(sums) {
            let (computed, drawn) = (wait.mean_us as f64, sum / f64::from(walks));
            assert!((computed / drawn - 1.0).abs() < 0.01, "attempt {}: {computed} vs {drawn}", wait.attempt);
        }
    }
}

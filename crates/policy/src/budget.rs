//! A retry budget, shared by all callers of one dependency.

use core::sync::atomic::{AtomicU32, Ordering};

/// The cost of a retry; a success refunds `ratio` of it.
const RETRY: u32 = 1000;

/// A retry budget: a token bucket in one atomic word.
///
/// It starts with `burst` retries. A retry withdraws one, and a success refunds `ratio` of one. For any
/// failure rate, `n` requests make at most `n × (1 + ratio) + burst` calls, so the retries of the callers
/// never multiply the load during an outage.
///
/// ```
/// use holdoff_policy::{Budget, BudgetOptions};
///
/// let budget = Budget::new(BudgetOptions { burst: 1, ratio: 0.5 });
/// assert!(budget.withdraw());
/// assert!(!budget.withdraw(), "the only retry is gone");
/// budget.refund();
/// budget.refund();
/// assert!(budget.withdraw(), "two successes have earned one");
/// ```
#[derive(Debug)]
pub struct Budget(Bucket<AtomicU32>);

/// The size and refill ratio of a [`Budget`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BudgetOptions {
    /// The number of retries that each success earns: 0.2 allows one retry in five calls. From 0 to 1000.
    pub ratio: f64,
    /// The largest number of retries in the bucket, at most a million.
    pub burst: u32,
}

impl Default for BudgetOptions {
    /// Returns a ratio of 0.2 and a burst of ten.
    fn default() -> Self {
        Self { ratio: 0.2, burst: 10 }
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(BudgetOptions::default())
    }
}

impl Budget {
    /// Creates a full budget. Options out of range are limited to the range.
    pub fn new(options: BudgetOptions) -> Self {
        let (full, refund) = options.in_tokens();
        Self(Bucket { tokens: AtomicU32::new(full), full, refund })
    }

    /// Withdraws one retry; returns `false` and withdraws nothing if none is left.
    #[inline]
    pub fn withdraw(&self) -> bool {
        self.0.withdraw()
    }

    /// Refunds the share of one success.
    #[inline]
    pub fn refund(&self) {
        self.0.refund();
    }

    /// Returns a whole retry that was withdrawn but not made.
    pub fn put_back(&self) {
        self.0.put_back();
    }

    /// Returns the number of whole retries left.
    pub fn left(&self) -> u32 {
        self.0.tokens.load(Ordering::Relaxed) / RETRY
    }
}

impl BudgetOptions {
    /// Returns the bucket's size and the refund of one success.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0..=1000 first")]
    fn in_tokens(self) -> (u32, u32) {
        let ratio = if self.ratio.is_nan() { 0.0 } else { self.ratio.clamp(0.0, 1000.0) };
        let refund = (ratio * f64::from(RETRY) + 0.5) as u32;
        (self.burst.min(1_000_000) * RETRY, refund)
    }
}

/// The operations on the atomic word, so that a model checker can replace the hardware.
trait Word {
    fn read(&self) -> u32;
    fn replace(&self, old: u32, new: u32) -> Result<u32, u32>;
}

impl Word for AtomicU32 {
    fn read(&self) -> u32 {
        self.load(Ordering::Relaxed)
    }

    fn replace(&self, old: u32, new: u32) -> Result<u32, u32> {
        // Relaxed: the count is the only shared data; no other memory is published through it.
        self.compare_exchange_weak(old, new, Ordering::Relaxed, Ordering::Relaxed)
    }
}

#[derive(Debug)]
struct Bucket<W> {
    tokens: W,
    full: u32,
    refund: u32,
}

impl<W: Word> Bucket<W> {
    fn withdraw(&self) -> bool {
        self.update(|tokens| tokens.checked_sub(RETRY))
    }

    /// A full bucket is only read, so that successful callers do not contend for the cache line.
    fn refund(&self) {
        self.update(|tokens| (tokens < self.full).then(|| tokens.saturating_add(self.refund).min(self.full)));
    }

    fn put_back(&self) {
        self.update(|tokens| (tokens < self.full).then(|| tokens.saturating_add(RETRY).min(self.full)));
    }

    /// Applies `change` atomically; returns `false` if `change` returns `None`.
    fn update(&self, change: impl Fn(u32) -> Option<u32>) -> bool {
        let mut seen = self.tokens.read();
        loop {
            let Some(new) = change(seen) else { return false };
            match self.tokens.replace(seen, new) {
                Ok(_) => return true,
                Err(actual) => seen = actual,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_clamped_to_their_range() {
        let full = |options: BudgetOptions| Budget::new(options).left();
        assert_eq!(full(BudgetOptions { ratio: f64::NAN, burst: u32::MAX }), 1_000_000);
        let budget = Budget::new(BudgetOptions { ratio: -1.0, burst: 1 });
        assert!(budget.withdraw());
        budget.refund();
        assert!(!budget.withdraw());
    }

    #[test]
    fn a_budget_never_holds_more_than_the_burst() {
        let budget = Budget::new(BudgetOptions { ratio: 0.7, burst: 2 });
        (0..100).for_each(|_| budget.refund());
        assert_eq!(budget.left(), 2);
    }

    mod under_threads {
        use super::super::*;
        use shuttle::sync::Arc;
        use shuttle::sync::atomic::{AtomicU32, AtomicUsize};
        use shuttle::thread;

        impl Word for AtomicU32 {
            fn read(&self) -> u32 {
                self.load(Ordering::SeqCst)
            }

            fn replace(&self, old: u32, new: u32) -> Result<u32, u32> {
                self.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst)
            }
        }

        fn bucket(start: u32, full: u32, refund: u32) -> Arc<Bucket<AtomicU32>> {
            Arc::new(Bucket { tokens: AtomicU32::new(start), full, refund })
        }

        /// Four threads with two retries and two refunds of half a retry: at most three withdrawals succeed,
        /// and the withdrawn and remaining tokens add up to the deposited tokens.
        #[test]
        fn concurrent_updates_conserve_tokens() {
            shuttle::check_random(
                || {
                    let bucket = bucket(2 * RETRY, 10 * RETRY, RETRY / 2);
                    let granted = Arc::new(AtomicUsize::new(0));
                    let threads: Vec<_> = (0..4)
                        .map(|number| {
                            let (bucket, granted) = (bucket.clone(), granted.clone());
                            thread::spawn(move || {
                                if number % 2 == 0 {
                                    bucket.refund();
                                }
                                if bucket.withdraw() {
                                    granted.fetch_add(1, Ordering::SeqCst);
                                }
                            })
                        })
                        .collect();
                    for thread in threads {
                        thread.join().unwrap();
                    }
                    let had = u32::try_from(granted.load(Ordering::SeqCst)).unwrap() * RETRY;
                    assert_eq!(had + bucket.tokens.read(), 3 * RETRY);
                },
                2000,
            );
        }

        /// Concurrent refunds at the limit: the bucket never overflows.
        #[test]
        fn a_budget_never_overflows() {
            shuttle::check_dfs(
                || {
                    let bucket = bucket(RETRY / 2, RETRY, RETRY * 2 / 5);
                    let threads: Vec<_> = (0..2)
                        .map(|_| {
                            let bucket = bucket.clone();
                            thread::spawn(move || bucket.refund())
                        })
                        .collect();
                    for thread in threads {
                        thread.join().unwrap();
                    }
                    assert_eq!(bucket.tokens.read(), RETRY);
                },
                None,
            );
        }
    }
}

//! The options of a device.

use std::time::Duration;

use holdoff_policy::{Growth, Jitter, Policy, RetryAfter};

/// The options of a device.
#[derive(Clone, Debug)]
pub struct Options {
    /// The waiting time, beyond two measured round trips, after a higher ballot has preempted an attempt. The
    /// device passes the two round trips to the policy as the retry-after delay.
    pub policy: Policy,
    /// The waiting time for answers, beyond the measured answer timeout, before the device repeats a request. The
    /// device passes the answer timeout to the policy as the retry-after delay.
    pub asking: Policy,
    /// The interval at which the device polls for news that the acceptors have not pushed.
    pub polling: Policy,
    /// The time that the device leaves to other devices to compact the council, and to send the snapshot to
    /// acceptors that lack it.
    pub upkeep: Policy,
    /// Whether the device announces its operations to others, and proposes theirs.
    pub shares: bool,
    /// The maximum number of operations in one slot.
    pub batch: usize,
    /// The maximum number of pending operations.
    pub pending: usize,
    /// The assumed round-trip time before the first measurement.
    pub first_guess: Duration,
    /// The number of applied slots after which the device stores its whole state.
    pub store_every: u64,
    /// The number of slots after which the device starts a compaction. It is well below the limit of the acceptors.
    pub compact_slots: u64,
    /// The number of bytes of values, as far as the device knows of them, after which it also starts a compaction.
    pub compact_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            policy: waiting(),
            asking: asking(),
            polling: polling(),
            upkeep: upkeep(),
            shares: true,
            batch: 64,
            pending: 256,
            first_guess: Duration::from_millis(100),
            store_every: 100,
            compact_slots: 4096,
            compact_bytes: 8 * 1024 * 1024,
        }
    }
}

/// Full jitter on top of the two round trips. The policy never gives up: the deadline ends an operation.
fn waiting() -> Policy {
    let ms = Duration::from_millis;
    let spread = RetryAfter { spread: ms(50), ..RetryAfter::default() };
    let growth = Growth::exponential(ms(25), 2.0);
    let builder = Policy::builder(growth).jitter(Jitter::Full).cap(ms(1000)).attempts(u32::MAX);
    builder.retry_after(spread).build().unwrap_or_else(|_| Policy::standard())
}

/// Exponential backoff, because an overloaded acceptor needs longer pauses to recover. The measured answer timeout
/// is the minimum.
fn asking() -> Policy {
    let ms = Duration::from_millis;
    let growth = Growth::exponential(ms(50), 2.0);
    let builder = Policy::builder(growth).jitter(Jitter::Proportional(0.2)).cap(ms(4000)).attempts(u32::MAX);
    builder.build().unwrap_or_else(|_| Policy::standard())
}

/// An interval of two seconds with jitter, so that devices do not poll at the same time.
fn polling() -> Policy {
    let builder = Policy::builder(Growth::constant(Duration::from_secs(2))).jitter(Jitter::Equal);
    builder.attempts(u32::MAX).build().unwrap_or_else(|_| Policy::standard())
}

/// At least two polling intervals, in which the device can learn that another device has done the work. If it does
/// not help, the intervals grow.
fn upkeep() -> Policy {
    let growth = Growth::exponential(Duration::from_secs(8), 2.0);
    let builder = Policy::builder(growth).jitter(Jitter::Equal).cap(Duration::from_secs(300));
    builder.attempts(u32::MAX).build().unwrap_or_else(|_| Policy::standard())
}

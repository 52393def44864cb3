//! Thread CPU time, minimum over many rounds.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The number of rounds for each contestant: enough to outlast disturbances of a second.
const ROUNDS: usize = 1500;
/// The number of calls in a round.
pub(crate) const CALLS: u32 = 10_000;

/// A contestant: runs [`CALLS`] calls.
pub(crate) type Contestant<'a> = (&'static str, Box<dyn FnMut() + 'a>);

/// Returns the CPU time of this thread.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    Duration::from_secs(part(time.tv_sec)) + Duration::from_nanos(part(time.tv_nsec))
}

/// Returns the nanoseconds per call of each contestant: the best of many rounds. The contestants alternate,
/// so that disturbances of the machine affect all of them.
pub(crate) fn contest(mut contestants: Vec<Contestant<'_>>) -> Vec<(&'static str, f64)> {
    let mut best = vec![Duration::MAX; contestants.len()];
    for _ in 0..ROUNDS {
        for ((_, run), best) in contestants.iter_mut().zip(&mut best) {
            let start = cpu_time();
            run();
            *best = (*best).min(cpu_time().saturating_sub(start));
        }
    }
    let per_call = |best: &Duration| best.as_secs_f64() * 1e9 / f64::from(CALLS);
    contestants.iter().zip(&best).map(|((name, _), best)| (*name, per_call(best))).collect()
}

#[expect(clippy::disallowed_methods, reason = "a benchmark looks at the clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

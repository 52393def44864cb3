//! The seeds of simulations and fuzz tests.

use std::ops::Range;

use crate::is_deep;

/// The first seed. Without [`SEEDS_VARIABLE`] a test runs this seed only.
pub const SEED_VARIABLE: &str = "HOLDOFF_SEED";
/// The number of seeds.
pub const SEEDS_VARIABLE: &str = "HOLDOFF_SEEDS";

/// The seeds of a test: `quick` of them, or `deep` in a deep run, unless the environment sets them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seeds {
    range: Range<u64>,
    /// Whether the environment asks for one seed only.
    is_replay: bool,
}

impl Seeds {
    /// Returns the seeds of a test.
    pub fn new(quick: u64, deep: u64) -> Self {
        let usual = if is_deep() { deep } else { quick };
        Self::of(number(SEED_VARIABLE), number(SEEDS_VARIABLE), usual)
    }

    fn of(first: Option<u64>, count: Option<u64>, usual: u64) -> Self {
        let is_replay = first.is_some() && count.is_none();
        let count = count.unwrap_or(if is_replay { 1 } else { usual });
        let first = first.unwrap_or(0);
        Self { range: first..first.saturating_add(count), is_replay }
    }

    /// Returns one of several parts, for tests that run in parallel. A replay has one part.
    #[must_use]
    pub fn part(&self, part: u64, parts: u64) -> Self {
        let each = self.count().div_ceil(parts);
        let start = self.range.start.saturating_add(part * each).min(self.range.end);
        let end = start.saturating_add(each).min(self.range.end);
        Self { range: start..end, is_replay: self.is_replay }
    }

    /// Returns the number of seeds.
    pub fn count(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Returns whether the environment asks for one seed only.
    pub fn is_replay(&self) -> bool {
        self.is_replay
    }

    /// Returns the seeds.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Returns the command that replays a seed.
    pub fn replay(seed: u64, command: &str) -> String {
        format!("replay: {SEED_VARIABLE}={seed} {command}")
    }
}

impl IntoIterator for Seeds {
    type Item = u64;
    type IntoIter = Range<u64>;

    fn into_iter(self) -> Range<u64> {
        self.range
    }
}

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("${variable} is {value:?}, not a number")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_sets_the_first_seed_and_the_number() {
        assert_eq!(Seeds::of(None, None, 40).range(), 0..40);
        assert_eq!(Seeds::of(None, Some(9), 40).range(), 0..9);
        assert_eq!(Seeds::of(Some(7), Some(9), 40).range(), 7..16);
        let replay = Seeds::of(Some(7), None, 40);
        assert!(replay.is_replay() && replay.range() == (7..8));
        let parts: Vec<_> = (0..4).flat_map(|part| replay.part(part, 4)).collect();
        assert_eq!(parts, [7], "one part replays the seed");
        let parts: Vec<_> = (0..4).flat_map(|part| Seeds::of(Some(3), Some(10), 0).part(part, 4)).collect();
        assert_eq!(parts, (3..13).collect::<Vec<_>>());
    }
}

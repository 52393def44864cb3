//! Inputs that nobody would send, by seeds that can be tried again.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fastrand::Rng;

use crate::scaled;

fn asked(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// A quick run tries this fraction of a deep run's inputs.
const QUICK_DIVISOR: u64 = 20;

/// Returns how many inputs a target gets: `deep` in a deep run, a twentieth of it in a quick one, or the value of
/// `HOLDOFF_FUZZ_CASES`.
pub fn cases(deep: u64) -> u64 {
    scaled("HOLDOFF_FUZZ_CASES", deep / QUICK_DIVISOR, deep)
}

/// Runs one target over many seeds, from `HOLDOFF_FUZZ_SEED` on; a panic is reported with the seed and the command that
/// replay it.
pub fn hunt(command: &str, cases: u64, target: impl Fn(&mut Rng)) {
    let start = asked("HOLDOFF_FUZZ_SEED").unwrap_or(0);
    for seed in start..start + cases {
        let mut rng = Rng::with_seed(seed);
        let survived = catch_unwind(AssertUnwindSafe(|| target(&mut rng))).is_ok();
        assert!(survived, "replay with HOLDOFF_FUZZ_SEED={seed} HOLDOFF_FUZZ_CASES=1 {command}");
    }
}

/// Cuts a text, doubles parts of it, and sprinkles it with characters and these words.
pub fn mutate(rng: &mut Rng, text: &str, words: &[&str]) -> String {
    let mut characters: Vec<char> = text.chars().collect();
    for _ in 0..rng.usize(1..6) {
        let at = rng.usize(0..=characters.len());
        let until = |longest: usize, rng: &mut Rng| (at + rng.usize(0..longest)).min(characters.len());
        match rng.u8(0..5) {
            0 => characters.truncate(at),
            1 => {
                let word = rng.choice(words).copied().unwrap_or_default();
                characters.splice(at..at, word.chars()).for_each(drop);
            }
            2 => characters.insert(at, char::from(rng.u8(..))),
            3 => {
                let end = until(20, rng);
                characters.drain(at..end);
            }
            _ => {
                let end = until(40, rng);
                let copy = characters.get(at..end).unwrap_or_default().to_vec();
                characters.splice(at..at, copy).for_each(drop);
            }
        }
    }
    characters.into_iter().collect()
}

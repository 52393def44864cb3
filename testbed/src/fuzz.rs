//! Seeded, reproducible invalid inputs.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fastrand::Rng;

use crate::Seeds;

/// The ratio of the inputs of a deep run to those of a quick run.
const QUICK_DIVISOR: u64 = 20;

/// Returns the number of inputs of a target: `deep` in a deep run, a twentieth of it in a quick run, unless the environment
/// sets it ([`Seeds`]).
pub fn cases(deep: u64) -> u64 {
    Seeds::new(deep / QUICK_DIVISOR, deep).count()
}

/// Runs one target over many seeds. Reports a panic with the seed and the command that replays it.
pub fn run_seeds(command: &str, cases: u64, target: impl Fn(&mut Rng)) {
    for seed in Seeds::new(cases, cases) {
        let mut rng = Rng::with_seed(seed);
        let survived = catch_unwind(AssertUnwindSafe(|| target(&mut rng))).is_ok();
        assert!(survived, "{}", Seeds::replay(seed, command));
    }
}

/// Mutates a text: cuts it, duplicates parts of it, and inserts characters and these words.
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

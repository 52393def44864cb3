//! The checked properties, and the faults that occurred.

use crate::Token;

/// A violated property.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Broken {
    #[error("{0} µs: {1} and {2} both believe that they hold the lock")]
    TwoBelieve(u64, usize, usize),
    #[error("token {0} was granted to two")]
    OneTokenForTwo(Token),
    #[error("token {new} was granted after {old}")]
    TokenFell { old: Token, new: Token },
    #[error("{0}'s write was refused although it held the lock when it arrived")]
    HolderRefused(usize),
    #[error("two wrote with token {0}")]
    TwoWroteWithOneToken(Token),
    #[error("a write with token {late} was accepted after one with {seen}")]
    LateWriteAccepted { late: Token, seen: Token },
    #[error("{0} gave up for no reason: {1}")]
    GaveUpTooSoon(usize, String),
    #[error("it does not come to an end")]
    Endless,
    #[error("something is left behind: {0}")]
    LeftBehind(String),
}

/// The faults that occurred in one run.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Faults {
    pub(super) requests_lost: u32,
    pub(super) answers_lost: u32,
    /// Requests that arrived after their sender had stopped waiting for a response.
    pub(super) late: u32,
    pub(super) crashed: u32,
    /// Holders that were frozen until their lease had expired.
    pub(super) frozen: u32,
    pub(super) skewed: u32,
    pub(super) words_lost: u32,
}

impl Faults {
    fn all(&self) -> [(&'static str, u32); 7] {
        [
            ("request lost", self.requests_lost),
            ("answer lost", self.answers_lost),
            ("request late", self.late),
            ("crash", self.crashed),
            ("frozen past the lease", self.frozen),
            ("clock wrong", self.skewed),
            ("word lost", self.words_lost),
        ]
    }
}

/// The number of runs in which each fault occurred.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Strikes([(&'static str, u64); 7]);

impl Strikes {
    pub(super) fn add(&mut self, faults: &Faults) {
        for ((name, runs), (fault, count)) in self.0.iter_mut().zip(faults.all()) {
            *name = fault;
            *runs += u64::from(count > 0);
        }
    }

    pub(super) fn assert_each_in_a_third_of(&self, runs: u64) {
        for (name, struck) in self.0 {
            assert!(struck * 3 >= runs, "{name} struck in {struck} of {runs} runs: they prove too little");
        }
    }
}

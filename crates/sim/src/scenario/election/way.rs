//! The ways to find a leader that are compared.

/// A way to find a leader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// The first system's: three votes at random, the majority of them, or any.
    First,
    /// The same, but whoever was chosen is kept for ten seconds.
    Sticky,
    /// The same, but another is taken only if it has two votes more than the one before.
    Hysteresis,
    /// The same in rounds of a second.
    SlowRounds,
    /// Holdoff's: a hint by gossip, authority by the log.
    Holdoff,
}

impl Way {
    /// Every way.
    pub const ALL: [Self; 5] = [Self::First, Self::Sticky, Self::Hysteresis, Self::SlowRounds, Self::Holdoff];

    /// The words used in tables and on the command line.
    pub const NAMES: [&'static str; 5] =
        ["first", "first-sticky", "first-hysteresis", "first-slow", "holdoff"];

    /// The way of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.name() == name)
    }

    /// The word used in tables and on the command line.
    pub const fn name(self) -> &'static str {
        let [first, sticky, hysteresis, slow_rounds, holdoff] = Self::NAMES;
        match self {
            Self::First => first,
            Self::Sticky => sticky,
            Self::Hysteresis => hysteresis,
            Self::SlowRounds => slow_rounds,
            Self::Holdoff => holdoff,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_known() {
        assert_eq!(Way::NAMES.map(Way::named), Way::ALL.map(Some));
        assert_eq!(Way::named("full"), None);
    }
}

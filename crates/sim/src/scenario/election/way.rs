//! The leader election algorithms that are compared.

/// A leader election algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// The source document's algorithm: the majority of three random votes, or one of them at random.
    First,
    /// The same, but a node keeps its choice for ten seconds.
    Sticky,
    /// The same, but a node changes its choice only if another leader has two more votes than the current one.
    Hysteresis,
    /// The same with rounds of a second.
    SlowRounds,
    /// Holdoff's algorithm: a hint by gossip, authority by the log.
    Holdoff,
}

impl Way {
    /// All algorithms.
    pub const ALL: [Self; 5] = [Self::First, Self::Sticky, Self::Hysteresis, Self::SlowRounds, Self::Holdoff];

    /// The names used in tables and on the command line.
    pub const NAMES: [&'static str; 5] =
        ["first", "first-sticky", "first-hysteresis", "first-slow", "holdoff"];

    /// Returns the algorithm of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.name() == name)
    }

    /// Returns the name used in tables and on the command line.
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

//! Who decides a slot, and who of them has answered.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{NodeId, planted};

/// As many acceptors as one slot may have.
pub const MAX_ACCEPTORS: usize = 15;

/// The acceptors of a slot, of whom a majority decides it. The next slot may have others.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<NodeId>", into = "Vec<NodeId>")]
pub struct Configuration(Arc<[NodeId]>);

/// Why these cannot be the acceptors of a slot.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadConfiguration {
    /// There is nobody.
    #[error("there must be at least one acceptor")]
    Empty,
    /// There are too many.
    #[error("{0} acceptors are too many: at most {MAX_ACCEPTORS} decide a slot")]
    TooMany(usize),
    /// Somebody is named twice.
    #[error("acceptor {0} is named twice")]
    Twice(NodeId),
}

impl Configuration {
    /// These acceptors, in any order.
    pub fn new(acceptors: impl IntoIterator<Item = NodeId>) -> Result<Self, BadConfiguration> {
        let mut acceptors: Vec<_> = acceptors.into_iter().collect();
        acceptors.sort_unstable();
        let mut neighbours = acceptors.iter().zip(acceptors.iter().skip(1));
        if let Some((twice, _)) = neighbours.find(|(one, next)| one == next) {
            return Err(BadConfiguration::Twice(*twice));
        }
        match acceptors.len() {
            0 => Err(BadConfiguration::Empty),
            1..=MAX_ACCEPTORS => Ok(Self(acceptors.into())),
            many => Err(BadConfiguration::TooMany(many)),
        }
    }

    /// The acceptors, in the order of their ids.
    pub fn acceptors(&self) -> &[NodeId] {
        &self.0
    }

    /// How many of them decide.
    pub fn majority(&self) -> usize {
        self.0.len() / 2 + 1
    }

    /// Whether somebody is one of them.
    pub fn contains(&self, node: NodeId) -> bool {
        self.place(node).is_some()
    }

    /// Whether at most one acceptor comes or goes between the two.
    pub fn is_beside(&self, other: &Self) -> bool {
        let missing = |of: &Self, from: &Self| of.0.iter().filter(|node| !from.contains(**node)).count();
        missing(self, other) + missing(other, self) <= 1
    }

    fn place(&self, node: NodeId) -> Option<usize> {
        // A handful: looking at each is faster than any search.
        self.0.iter().position(|acceptor| *acceptor == node)
    }
}

impl TryFrom<Vec<NodeId>> for Configuration {
    type Error = BadConfiguration;

    fn try_from(acceptors: Vec<NodeId>) -> Result<Self, BadConfiguration> {
        Self::new(acceptors)
    }
}

impl From<Configuration> for Vec<NodeId> {
    fn from(configuration: Configuration) -> Self {
        configuration.0.to_vec()
    }
}

impl fmt::Debug for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.acceptors()).finish()
    }
}

/// Which acceptors of a configuration have said something: a set, so that nobody counts twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Tally {
    said: u16,
    extra: u8,
}

impl Tally {
    /// Counts an acceptor. Whoever is not of this configuration does not count, nor anybody twice.
    pub fn count(&mut self, node: NodeId, of: &Configuration) {
        if let Some(place) = of.place(node) {
            let bit = 1 << place;
            if planted!(CountMessages) && self.said & bit != 0 {
                self.extra += 1;
            }
            self.said |= bit;
        }
    }

    /// How many.
    pub fn len(self) -> usize {
        self.said.count_ones() as usize + usize::from(self.extra)
    }

    /// Whether nobody has said anything.
    pub fn is_empty(self) -> bool {
        self.said == 0
    }

    /// Whether these are a majority.
    pub fn is_quorum(self, of: &Configuration) -> bool {
        self.len() >= of.majority()
    }

    /// Whether without these no majority is left.
    pub fn blocks(self, of: &Configuration) -> bool {
        self.len() > of.0.len() - of.majority()
    }

    /// Those who have not said anything yet.
    pub fn missing(self, of: &Configuration) -> impl Iterator<Item = NodeId> + '_ {
        let missing = move |(place, _): &(usize, &NodeId)| self.said & (1 << place) == 0;
        of.0.iter().enumerate().filter(missing).map(|(_, node)| *node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acceptors_count_once_and_strangers_never() {
        let three = Configuration::new([1, 2, 3].map(NodeId)).unwrap();
        let mut tally = Tally::default();
        for node in [2, 2, 2, 9] {
            tally.count(NodeId(node), &three);
        }
        assert_eq!((tally.len(), tally.is_quorum(&three), tally.blocks(&three)), (1, false, false));
        assert_eq!(tally.missing(&three).collect::<Vec<_>>(), [1, 3].map(NodeId));
        tally.count(NodeId(3), &three);
        assert!(tally.is_quorum(&three) && tally.blocks(&three));
    }

    #[test]
    fn two_majorities_always_meet() {
        for many in 1..=MAX_ACCEPTORS {
            let configuration = Configuration::new((0..many as u128).map(NodeId)).unwrap();
            assert!(configuration.majority() * 2 > many);
        }
    }

    #[test]
    fn what_cannot_decide_is_refused() {
        assert_eq!(Configuration::new([]), Err(BadConfiguration::Empty));
        assert_eq!(Configuration::new([1, 1].map(NodeId)), Err(BadConfiguration::Twice(NodeId(1))));
        assert_eq!(Configuration::new((0..16).map(NodeId)), Err(BadConfiguration::TooMany(16)));
    }
}

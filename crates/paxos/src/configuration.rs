//! The acceptors of a slot, and the set of acceptors that have answered.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::NodeId;

/// The maximum number of acceptors of a slot.
pub const MAX_ACCEPTORS: usize = 15;

/// The acceptors of a slot. A majority of them decides the slot; the next slot may have other acceptors.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<NodeId>", into = "Vec<NodeId>")]
pub struct Configuration(Arc<[NodeId]>);

/// The reason why a list of nodes is not a valid configuration.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadConfiguration {
    /// The list has no acceptors.
    #[error("a configuration needs at least one acceptor")]
    Empty,
    /// The list has more than [`MAX_ACCEPTORS`] acceptors.
    #[error("{0} acceptors are too many: a configuration has at most {MAX_ACCEPTORS}")]
    TooMany(usize),
    /// The list names an acceptor twice.
    #[error("acceptor {0} is listed twice: list each acceptor once")]
    Twice(NodeId),
}

impl Configuration {
    /// Creates a configuration of these acceptors, given in any order.
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

    /// Returns the acceptors, sorted by id.
    pub fn acceptors(&self) -> &[NodeId] {
        &self.0
    }

    /// Returns the size of a majority.
    pub fn majority(&self) -> usize {
        self.0.len() / 2 + 1
    }

    /// Returns whether a node is one of the acceptors.
    pub fn contains(&self, node: NodeId) -> bool {
        self.position(node).is_some()
    }

    /// Returns whether the two configurations differ in at most one acceptor, added or removed.
    pub fn is_single_change_from(&self, other: &Self) -> bool {
        let missing = |of: &Self, from: &Self| of.0.iter().filter(|node| !from.contains(**node)).count();
        missing(self, other) + missing(other, self) <= 1
    }

    fn position(&self, node: NodeId) -> Option<usize> {
        // There are at most 15 acceptors: a linear scan is faster than any search.
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

/// The set of acceptors of a configuration that have answered. It is a set, so that no acceptor counts twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Tally {
    answered: u16,
}

impl Tally {
    /// Counts an acceptor. A node outside the configuration does not count, and a repeated answer changes nothing.
    pub fn count(&mut self, node: NodeId, of: &Configuration) {
        if let Some(index) = of.position(node) {
            self.answered |= 1 << index;
        }
    }

    /// Returns the number of acceptors counted.
    pub fn len(self) -> usize {
        self.answered.count_ones() as usize
    }

    /// Returns whether no acceptor has been counted.
    pub fn is_empty(self) -> bool {
        self.answered == 0
    }

    /// Returns whether the counted acceptors are a majority.
    pub fn is_quorum(self, of: &Configuration) -> bool {
        self.len() >= of.majority()
    }

    /// Returns whether the acceptors that are not counted are too few for a majority.
    pub fn blocks(self, of: &Configuration) -> bool {
        self.len() > of.0.len() - of.majority()
    }

    /// Returns the acceptors that have not been counted yet.
    pub fn missing(self, of: &Configuration) -> impl Iterator<Item = NodeId> + '_ {
        let missing = move |(index, _): &(usize, &NodeId)| self.answered & (1 << index) == 0;
        of.0.iter().enumerate().filter(missing).map(|(_, node)| *node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acceptors_count_once_and_other_nodes_never() {
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
    fn two_majorities_always_intersect_and_half_of_the_acceptors_blocks() {
        for many in 1..=MAX_ACCEPTORS {
            let nodes: Vec<_> = (1..=many as u128).map(NodeId).collect();
            let configuration = Configuration::new(nodes.iter().rev().copied()).unwrap();
            let mut tally = Tally::default();
            for counted in 0..=many {
                let missing = &nodes[counted..];
                assert_eq!((tally.len(), tally.is_empty()), (counted, counted == 0));
                assert_eq!(tally.is_quorum(&configuration), counted * 2 > many);
                assert_eq!(tally.blocks(&configuration), counted * 2 >= many);
                assert_eq!(tally.missing(&configuration).collect::<Vec<_>>(), missing);
                missing.iter().take(1).for_each(|node| tally.count(*node, &configuration));
            }
        }
    }

    #[test]
    fn a_single_change_adds_or_removes_one_acceptor() {
        let of = |nodes: &[u128]| Configuration::new(nodes.iter().copied().map(NodeId)).unwrap();
        let three = of(&[1, 2, 3]);
        for single in [&[1, 2][..], &[1, 2, 3], &[1, 2, 3, 4]] {
            assert!(of(single).is_single_change_from(&three), "{single:?}");
        }
        for other in [&[1][..], &[1, 2, 4], &[1, 2, 3, 4, 5]] {
            assert!(!of(other).is_single_change_from(&three), "{other:?}");
        }
    }

    #[test]
    fn a_configuration_is_the_set_of_its_acceptors() {
        let three = Configuration::new([3, 1, 2].map(NodeId)).unwrap();
        assert_eq!(three.acceptors(), [1, 2, 3].map(NodeId));
        assert_eq!(Configuration::try_from(Vec::from(three.clone())), Ok(three.clone()));
        let set = std::collections::BTreeSet::from([1, 2, 3].map(NodeId));
        assert_eq!(format!("{three:?}"), format!("{set:?}"));
    }

    #[test]
    fn invalid_configurations_are_rejected() {
        assert_eq!(Configuration::new([]), Err(BadConfiguration::Empty));
        assert_eq!(Configuration::new([1, 1].map(NodeId)), Err(BadConfiguration::Twice(NodeId(1))));
        assert_eq!(Configuration::new((0..16).map(NodeId)), Err(BadConfiguration::TooMany(16)));
    }
}

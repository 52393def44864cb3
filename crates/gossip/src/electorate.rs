//! The voters: they may lead, and a majority of them ends an epoch.

use holdoff_net::PublicKey;

/// The maximum number of voters of a log.
pub const MAX_VOTERS: usize = 15;

/// The set of voters, as the log's configuration names them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Electorate(Box<[PublicKey]>);

/// The reason why a list of keys is not a valid electorate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadElectorate {
    /// The list has no voters: no node could ever lead.
    #[error("there is no voter: name at least one")]
    Empty,
    /// The list has more voters than a log may have.
    #[error("{0} voters are too many: a log has at most {MAX_VOTERS}")]
    TooMany(usize),
}

impl Electorate {
    /// Creates an electorate. Repeated keys count once.
    pub fn new(voters: impl IntoIterator<Item = PublicKey>) -> Result<Self, BadElectorate> {
        let mut voters: Vec<_> = voters.into_iter().collect();
        voters.sort_unstable();
        voters.dedup();
        match voters.len() {
            0 => Err(BadElectorate::Empty),
            1..=MAX_VOTERS => Ok(Self(voters.into())),
            many => Err(BadElectorate::TooMany(many)),
        }
    }

    /// Returns whether a node votes.
    pub fn has(&self, node: &PublicKey) -> bool {
        self.0.binary_search(node).is_ok()
    }

    pub(crate) fn voters(&self) -> &[PublicKey] {
        &self.0
    }

    /// Returns the size of a majority.
    pub fn majority(&self) -> usize {
        self.0.len() / 2 + 1
    }

    /// Returns whether there is a single voter.
    pub fn is_single(&self) -> bool {
        self.0.len() == 1
    }
}

//! Who may lead, and who says that an epoch is over.

use holdoff_net::PublicKey;

/// As many voters a log has at most.
pub const MAX_VOTERS: usize = 15;

/// The voters, as the log's configuration names them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Electorate(Box<[PublicKey]>);

/// Why these are no electorate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadElectorate {
    /// Nobody could ever lead.
    #[error("there is no voter: name at least one")]
    Empty,
    /// More than a log has.
    #[error("{0} voters are too many: a log has at most {MAX_VOTERS}")]
    TooMany(usize),
}

impl Electorate {
    /// These voters, each of them once.
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

    /// Whether this node votes.
    pub fn has(&self, node: &PublicKey) -> bool {
        self.0.binary_search(node).is_ok()
    }

    pub(crate) fn voters(&self) -> &[PublicKey] {
        &self.0
    }

    /// How many are more than half.
    pub fn majority(&self) -> usize {
        self.0.len() / 2 + 1
    }

    /// Whether there is nobody to agree with.
    pub fn is_single(&self) -> bool {
        self.0.len() == 1
    }
}

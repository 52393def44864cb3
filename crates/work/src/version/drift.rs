//! Policy drift between a node and the other nodes on its store.

use std::fmt;

use holdoff_policy::PolicyId;

/// A difference between a node's policies and those of the other nodes on its store. The node continues to work, with
/// the policies that it uses.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Drift {
    /// The node's own policy file differs from the active version.
    OwnFile {
        /// The version of the node's file.
        own: PolicyId,
        /// The active version.
        active: PolicyId,
    },
    /// This node cannot use the active version; it uses the previous one.
    Refused {
        /// The active version.
        active: PolicyId,
        /// The version that this node uses.
        current: PolicyId,
        /// The reason why the active version cannot be used.
        why: String,
    },
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OwnFile { own, active } => write!(
                f,
                "this node's policy file is version {}, and version {} is active on the store: bring the file in \
                 line, or publish it by `holdoff policy apply` or SIGHUP",
                short(own),
                short(active)
            ),
            Self::Refused { active, current, why } => write!(
                f,
                "the active version {} cannot be used on this node, which goes on with {}: {why}",
                short(active),
                short(current)
            ),
        }
    }
}

/// Returns a prefix of the id that is long enough to distinguish versions.
fn short(id: &PolicyId) -> String {
    id.to_string().chars().take(12).collect()
}

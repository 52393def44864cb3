//! How a node differs from the others on its store.

use std::fmt;

use holdoff_policy::PolicyId;

/// How a node differs from the others on its store. It goes on all the same, by the policies in force.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Drift {
    /// The node's own policy file is not what is in force.
    OwnFile {
        /// The version of its file.
        own: PolicyId,
        /// The version in force.
        active: PolicyId,
    },
    /// The active version cannot be used here; the one before is still in force on this node.
    Refused {
        /// The active version.
        active: PolicyId,
        /// The version in force here.
        current: PolicyId,
        /// Why it cannot be used.
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

/// As much of an id as tells versions apart.
fn short(id: &PolicyId) -> String {
    id.to_string().chars().take(12).collect()
}

//! Records of policy versions.

use holdoff_policy::PolicyId;
use serde::{Serialize, Serializer};

use crate::Moment;

/// A deployed version of the policies.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct VersionRecord {
    /// The hash of its content.
    #[serde(serialize_with = "shown")]
    pub id: PolicyId,
    /// Whether it is active.
    pub active: bool,
    /// When it was first deployed.
    pub published_at: Moment,
    /// The author of its first deployment, if known.
    pub published_by: Option<String>,
    /// When it was last activated, if known.
    pub activated_at: Option<Moment>,
    /// The author of its last activation, if known.
    pub activated_by: Option<String>,
}

/// The result of a deployment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Published {
    /// The version that is active now.
    pub id: PolicyId,
    /// Whether it replaced another active version.
    pub replaced: bool,
}

fn shown<S: Serializer>(id: &PolicyId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

/// A version as the stores keep it: its hash, whether it is active, and the times and authors of its deployment and
/// last activation.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) type VersionRow = (Vec<u8>, bool, i64, Option<String>, Option<i64>, Option<String>);

#[cfg(any(feature = "postgres", feature = "sqlite"))]
impl VersionRecord {
    pub(crate) fn of_row(row: VersionRow) -> Option<Self> {
        let (hash, active, published_at, published_by, activated_at, activated_by) = row;
        Some(Self {
            id: super::id_of(&hash)?,
            active,
            published_at: Moment(published_at),
            published_by,
            activated_at: activated_at.map(Moment),
            activated_by,
        })
    }
}

//! What is known of a version.

use holdoff_policy::PolicyId;
use serde::{Serialize, Serializer};

use crate::Moment;

/// What is known of a published version of the policies.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct VersionRecord {
    /// Its name by content.
    #[serde(serialize_with = "shown")]
    pub id: PolicyId,
    /// Whether it is in force.
    pub active: bool,
    /// When it was first published.
    pub published_at: Moment,
    /// Who published it first, if that is known.
    pub published_by: Option<String>,
    /// When it last came into force, if that is known.
    pub activated_at: Option<Moment>,
    /// Who put it in force last, if that is known.
    pub activated_by: Option<String>,
}

/// What came of publishing policies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Published {
    /// The version that is in force now.
    pub id: PolicyId,
    /// Whether another one was in force before.
    pub replaced: bool,
}

fn shown<S: Serializer>(id: &PolicyId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

/// A version as the stores keep it: its hash, whether it is active, and when and by whom it was published and put in
/// force.
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

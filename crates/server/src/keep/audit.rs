//! Who did what.

use holdoff_work::Moment;
use serde::Serialize;
use utoipa::ToSchema;

use crate::schema::MomentText;

/// Something an operator did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Deed {
    /// Who: a token's name, `loopback`, or `command line`.
    pub who: String,
    /// The token's id, if it was by a token.
    pub token: Option<String>,
    /// What, such as `lock.force-release`.
    pub action: String,
    /// In which namespace, if it was in one.
    pub namespace: Option<String>,
    /// On what: a key, an id, a filter. Never a payload.
    pub object: String,
    /// How many it struck.
    pub count: u64,
    /// The request it was done by.
    pub request: Option<String>,
}

/// The longest name of a thing that is written down, in characters.
const LONGEST_OBJECT: usize = 500;

impl Deed {
    /// This was done, to one thing.
    pub fn new(action: impl Into<String>, object: impl Into<String>) -> Self {
        let object: String = object.into();
        let object = object.chars().filter(|sign| !sign.is_control()).take(LONGEST_OBJECT).collect();
        Self { action: action.into(), object, count: 1, ..Self::default() }
    }

    /// By whom.
    #[must_use]
    pub fn by(mut self, who: impl Into<String>) -> Self {
        self.who = who.into();
        self
    }

    /// In this namespace.
    #[must_use]
    pub fn within(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// To so many things.
    #[must_use]
    pub const fn times(mut self, count: u64) -> Self {
        self.count = count;
        self
    }
}

/// One line of the audit log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[non_exhaustive]
pub struct AuditEntry {
    /// Its number, which only grows.
    pub id: i64,
    /// When, by the store's clock.
    #[schema(value_type = MomentText)]
    pub at: Moment,
    /// Who: a token's name, `loopback`, or `command line`.
    pub who: String,
    /// The token's id, if it was by a token.
    pub token: Option<String>,
    /// What.
    pub action: String,
    /// In which namespace, if it was in one.
    pub namespace: Option<String>,
    /// On what.
    pub object: String,
    /// How many it struck.
    pub count: i64,
    /// The request it was done by.
    pub request: Option<String>,
}

/// Which part of the audit log.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct AuditPage {
    /// Only what was done in this namespace.
    pub namespace: Option<String>,
    /// Only what is older than the entry with this number.
    pub before: Option<i64>,
    /// At most so many.
    pub limit: u32,
}

impl AuditPage {
    /// The most entries at once.
    pub const MOST: u32 = 1000;

    /// The newest entries.
    pub fn newest(limit: u32) -> Self {
        Self { namespace: None, before: None, limit: limit.clamp(1, Self::MOST) }
    }
}

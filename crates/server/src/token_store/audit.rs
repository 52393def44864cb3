//! The audit log.

use holdoff_policy::is_unprintable;
use holdoff_work::Moment;
use serde::Serialize;
use utoipa::ToSchema;

use crate::schema::MomentText;

/// An action of an operator.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct AuditEvent {
    /// The actor: a token's name, `loopback`, or `command line`.
    pub actor: String,
    /// The token's id, if the actor used a token.
    pub token: Option<String>,
    /// The action, such as `lock.force-release`.
    pub action: String,
    /// The namespace, if the action was confined to one.
    pub namespace: Option<String>,
    /// The object of the action: a key, an id or a filter. Never a payload.
    pub object: String,
    /// The number of affected objects.
    pub count: u64,
    /// The id of the request.
    pub request: Option<String>,
}

/// The maximum length of an object's name in the audit log, in characters.
const MAX_OBJECT_CHARS: usize = 500;

impl AuditEvent {
    /// Creates an event for an action on one object.
    pub fn new(action: impl Into<String>, object: impl Into<String>) -> Self {
        let object: String = object.into();
        let object =
            object.chars().filter(|character| !is_unprintable(*character)).take(MAX_OBJECT_CHARS).collect();
        Self { action: action.into(), object, count: 1, ..Self::default() }
    }

    /// Sets the actor.
    #[must_use]
    pub fn by(mut self, actor: impl Into<String>) -> Self {
        self.actor = actor.into();
        self
    }

    /// Sets the namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Sets the number of affected objects.
    #[must_use]
    pub const fn with_count(mut self, count: u64) -> Self {
        self.count = count;
        self
    }
}

/// One line of the audit log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[non_exhaustive]
pub struct AuditEntry {
    /// The entry's number, which increases monotonically.
    pub id: i64,
    /// The time of the action, by the store's clock.
    #[schema(value_type = MomentText)]
    pub at: Moment,
    /// The actor: the name of an API token, `loopback`, or `command line`.
    pub actor: String,
    /// The id of the API token, if the actor used one.
    pub token: Option<String>,
    /// The action, such as `lock.force-release`.
    pub action: String,
    /// The namespace, if the action was confined to one.
    pub namespace: Option<String>,
    /// The object of the action: a key, an id or a filter.
    pub object: String,
    /// The number of affected objects.
    pub count: i64,
    /// The id of the request.
    pub request: Option<String>,
}

/// A page of the audit log.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct AuditPage {
    /// Only actions in this namespace.
    pub namespace: Option<String>,
    /// Only entries older than the one with this number.
    pub before: Option<i64>,
    /// The maximum number of entries.
    pub limit: u32,
}

impl AuditPage {
    /// The maximum of `limit`.
    pub const MAX_LIMIT: u32 = 1000;

    /// Selects the newest entries.
    pub fn newest(limit: u32) -> Self {
        Self { namespace: None, before: None, limit: limit.clamp(1, Self::MAX_LIMIT) }
    }
}

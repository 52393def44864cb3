//! `GET /v1/policies`: the active policy set.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use holdoff_policy::{Policy, PolicySet, Scope};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::app::App;
use crate::problem::{Kind, Problem};

/// The policies in force.
#[derive(Serialize, ToSchema)]
#[schema(as = PolicySet)]
pub(super) struct ShownSet {
    /// The version: a digest of all of it.
    version: String,
    /// The same as a file.
    file: String,
    /// The policies by name, presets included.
    policies: BTreeMap<String, ShownPolicy>,
    /// Which policy an operation has where no namespace says otherwise.
    operations: BTreeMap<String, String>,
    /// The policy of operations that are not named.
    default: String,
    /// Which policy an operation has in a namespace.
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
}

/// A policy.
#[derive(Serialize, ToSchema)]
#[schema(as = Policy)]
pub(super) struct ShownPolicy {
    /// A digest of its compiled form.
    id: String,
    /// Whether the file defines it; else it is a preset.
    own: bool,
    /// Tries in all, the first included; nothing if there is no limit.
    attempts: Option<u32>,
    /// No delay is longer, in microseconds.
    cap_us: u64,
    /// The compiled form, from which any language computes the same delays.
    #[schema(value_type = Object)]
    compiled: Box<RawValue>,
}

impl ShownPolicy {
    pub(super) fn new(set: &PolicySet, name: &str, policy: &Policy) -> Result<Self, Problem> {
        let compiled = RawValue::from_string(policy.canonical());
        Ok(Self {
            id: policy.id().to_string(),
            own: set.is_own(name),
            attempts: Some(policy.attempts()).filter(|attempts| *attempts != Policy::UNLIMITED),
            cap_us: u64::try_from(policy.cap().as_micros()).unwrap_or(u64::MAX),
            compiled: compiled.map_err(|why| Problem::new(Kind::Internal, why.to_string()))?,
        })
    }
}

/// The policies in force: which there are, and which operation has which.
#[utoipa::path(get, path = "/v1/policies", tag = "policies", security(("token" = ["read"])),
    responses((status = 200, description = "The set.", body = ShownSet)))]
pub(super) async fn policies(State(app): State<App>) -> Result<Json<ShownSet>, Problem> {
    let set = app.work.policies();
    let operations = |scope: &Scope| {
        let named = scope.operations.iter().map(|(name, operation)| (name.clone(), operation.policy.clone()));
        named.collect::<BTreeMap<_, _>>()
    };
    let mut policies = BTreeMap::new();
    for (name, policy) in set.policies() {
        policies.insert(name.clone(), ShownPolicy::new(&set, name, policy)?);
    }
    Ok(Json(ShownSet {
        version: set.id().to_string(),
        file: set.to_toml(),
        policies,
        operations: operations(set.root()),
        default: set.root().default.clone().unwrap_or_else(|| PolicySet::DEFAULT_POLICY.to_owned()),
        namespaces: set.namespaces().iter().map(|(name, scope)| (name.clone(), operations(scope))).collect(),
    }))
}

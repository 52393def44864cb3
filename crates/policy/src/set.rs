//! The policies of a program and the policy of each operation.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use crate::{ClassMap, PRESETS, Policy, PolicyId, glob};

/// Named policies, and the policy of each operation.
///
/// Usually read from `holdoff.toml` by [`PolicySet::from_toml`]. The presets are always present, unless a
/// policy of the same name replaces them.
#[derive(Clone, Debug)]
pub struct PolicySet {
    policies: BTreeMap<String, Arc<Policy>>,
    /// The names of the policies that this set defines itself.
    own: BTreeSet<String>,
    /// The parent of each policy that extends another.
    parents: BTreeMap<String, String>,
    root: PolicyScope,
    namespaces: BTreeMap<String, PolicyScope>,
    classes: ClassMap,
    /// The policy for a name that does not exist.
    fallback: Arc<Policy>,
}

/// The operations of one namespace, or of all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PolicyScope {
    /// The policy of every operation without its own policy.
    pub default: Option<String>,
    /// Operations by exact name or by pattern.
    pub operations: BTreeMap<String, OperationSettings>,
}

/// The properties of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OperationSettings {
    /// The name of the policy.
    pub policy: String,
    /// The caller's timeout, if given.
    pub timeout: Option<Duration>,
    /// The lease that the caller holds while it retries, if given.
    pub lease: Option<Duration>,
}

impl OperationSettings {
    /// Creates an operation with this policy and no further properties.
    pub fn new(policy: impl Into<String>) -> Self {
        Self { policy: policy.into(), timeout: None, lease: None }
    }
}

impl Default for PolicySet {
    /// Returns the presets alone; every operation uses `standard`.
    fn default() -> Self {
        let preset = |name: &str| Some((name.to_owned(), Arc::new(Policy::preset(name)?)));
        Self {
            policies: PRESETS.iter().filter_map(|(name, _)| preset(name)).collect(),
            own: BTreeSet::new(),
            parents: BTreeMap::new(),
            root: PolicyScope::default(),
            namespaces: BTreeMap::new(),
            classes: ClassMap::default(),
            fallback: Arc::new(Policy::standard()),
        }
    }
}

/// Compares the content of two sets; the parents of policies are ignored.
impl PartialEq for PolicySet {
    fn eq(&self, other: &Self) -> bool {
        self.policies == other.policies
            && self.own == other.own
            && self.root == other.root
            && self.namespaces == other.namespaces
            && self.classes == other.classes
    }
}

impl PolicySet {
    /// The policy of an operation without any entry.
    pub const DEFAULT_POLICY: &'static str = "standard";

    /// The policy of a step of durable work whose operation has no entry. It waits longer than [`DEFAULT_POLICY`](Self::DEFAULT_POLICY), because
    /// no caller waits for the step.
    pub const DEFAULT_STEP_POLICY: &'static str = "step";

    /// The namespace of a caller that names none.
    pub const DEFAULT_NAMESPACE: &'static str = "default";

    /// Adds a policy, or replaces a preset.
    pub fn define(&mut self, name: impl Into<String>, policy: Policy) {
        let name = name.into();
        self.policies.insert(name.clone(), Arc::new(policy));
        self.own.insert(name);
    }

    /// Records that a policy extends another.
    #[cfg(feature = "std")]
    pub(crate) fn note_parent(&mut self, child: &str, parent: &str) {
        self.parents.insert(child.to_owned(), parent.to_owned());
    }

    /// Returns the name of the policy that this policy extends, if any.
    pub fn parent(&self, name: &str) -> Option<&str> {
        self.parents.get(name).map(String::as_str)
    }

    /// Returns the scope that applies to every namespace.
    pub fn root(&self) -> &PolicyScope {
        &self.root
    }

    /// Returns the scope that applies to every namespace, for modification.
    pub fn root_mut(&mut self) -> &mut PolicyScope {
        &mut self.root
    }

    /// Returns the namespaces with their own operations.
    pub fn namespaces(&self) -> &BTreeMap<String, PolicyScope> {
        &self.namespaces
    }

    /// Returns the scope of one namespace, for modification; creates it if necessary.
    pub fn namespace_mut(&mut self, name: impl Into<String>) -> &mut PolicyScope {
        self.namespaces.entry(name.into()).or_default()
    }

    /// Returns the tables of failure classes.
    pub fn classes(&self) -> &ClassMap {
        &self.classes
    }

    /// Returns the tables of failure classes, for modification.
    pub fn classes_mut(&mut self) -> &mut ClassMap {
        &mut self.classes
    }

    /// Returns the policy of this name.
    pub fn policy(&self, name: &str) -> Option<&Arc<Policy>> {
        self.policies.get(name)
    }

    /// Returns all policies by name, presets included.
    pub fn policies(&self) -> &BTreeMap<String, Arc<Policy>> {
        &self.policies
    }

    /// Returns whether this set defines the policy of this name itself, rather than having it as a preset.
    pub fn is_own(&self, name: &str) -> bool {
        self.own.contains(name)
    }

    /// Returns the policy of this operation, and its name.
    ///
    /// An exact name takes precedence over a pattern, and the more specific of two patterns over the other.
    /// The operations of the namespace take precedence over those of the root scope. Defaults come last.
    pub fn policy_for(&self, namespace: &str, operation: &str) -> (&str, &Arc<Policy>) {
        self.policy_or(namespace, operation, Self::DEFAULT_POLICY)
    }

    /// Returns the policy of a step of durable work with this operation, and its name.
    ///
    /// The same entries and defaults apply as in [`policy_for`](Self::policy_for). Without any it is the preset `step`.
    pub fn policy_for_step(&self, namespace: &str, operation: &str) -> (&str, &Arc<Policy>) {
        self.policy_or(namespace, operation, Self::DEFAULT_STEP_POLICY)
    }

    fn policy_or<'a>(
        &'a self,
        namespace: &str,
        operation: &str,
        otherwise: &'a str,
    ) -> (&'a str, &'a Arc<Policy>) {
        let scope = self.namespaces.get(namespace);
        let named = scope
            .and_then(|scope| scope.find(operation))
            .or_else(|| self.root.find(operation))
            .map(|found| found.policy.as_str())
            .or_else(|| scope?.default.as_deref())
            .or(self.root.default.as_deref())
            .unwrap_or(otherwise);
        let found = self.policies.get_key_value(named);
        found.map_or((Self::DEFAULT_POLICY, &self.fallback), |(name, policy)| (name.as_str(), policy))
    }

    /// Returns the content id of the set: equal sets have equal ids.
    ///
    /// It is the SHA-256 of the set's facts in a fixed order. Each fact is a list of fields, and each field
    /// is preceded by its length in bytes as a 64-bit little-endian integer. The facts are `policy NAME ID`,
    /// `default POLICY`, `operation NAME POLICY TIMEOUT LEASE`, the same after `namespace NAME` for each
    /// namespace, and `class KIND CODE CLASS`. Times are in microseconds; an absent value is an empty field.
    pub fn id(&self) -> PolicyId {
        let mut facts = FactEncoder::default();
        for (name, policy) in &self.policies {
            facts.add(&["policy", name, &policy.id().to_string()]);
        }
        self.root.add_to(&mut facts);
        for (namespace, scope) in &self.namespaces {
            facts.add(&["namespace", namespace]);
            scope.add_to(&mut facts);
        }
        for (kind, code, class) in self.classes.overrides() {
            facts.add(&["class", kind, &code, class.name()]);
        }
        PolicyId::of(&facts.0)
    }
}

/// Encodes fields with their lengths, so that different lists of fields never have the same encoding.
#[derive(Default)]
struct FactEncoder(Vec<u8>);

impl FactEncoder {
    fn add(&mut self, fields: &[&str]) {
        for field in fields {
            self.0.extend_from_slice(&(field.len() as u64).to_le_bytes());
            self.0.extend_from_slice(field.as_bytes());
        }
    }
}

impl PolicyScope {
    /// Returns the operation of this name, or the most specific pattern that matches it.
    pub fn find(&self, operation: &str) -> Option<&OperationSettings> {
        if let Some(exact) = self.operations.get(operation) {
            return Some(exact);
        }
        let matching = self.operations.iter().filter(|(pattern, _)| glob::matches(pattern, operation));
        // Of equally specific patterns, the first in byte order applies; the lint reports them.
        matching.rev().max_by_key(|(pattern, _)| glob::specificity(pattern)).map(|(_, found)| found)
    }

    fn add_to(&self, facts: &mut FactEncoder) {
        if let Some(default) = &self.default {
            facts.add(&["default", default]);
        }
        let micros =
            |time: Option<Duration>| time.map_or_else(String::new, |time| time.as_micros().to_string());
        for (name, OperationSettings { policy, timeout, lease }) in &self.operations {
            facts.add(&["operation", name, policy, &micros(*timeout), &micros(*lease)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set() -> PolicySet {
        let mut set = PolicySet::default();
        let root = set.root_mut();
        root.default = Some("background".to_owned());
        for (name, policy) in
            [("user.login", "aggressive"), ("user.*", "conservative"), ("*", "step"), ("u*", "lock")]
        {
            root.operations.insert(name.to_owned(), OperationSettings::new(policy));
        }
        let eu = set.namespace_mut("eu");
        eu.default = Some("notification".to_owned());
        eu.operations.insert("user.l*".to_owned(), OperationSettings::new("proposal"));
        set
    }

    #[test]
    fn the_most_specific_wins() {
        let set = set();
        let name = |namespace, operation| set.policy_for(namespace, operation).0.to_owned();
        assert_eq!(name("default", "user.login"), "aggressive");
        assert_eq!(name("default", "user.logout"), "conservative");
        assert_eq!(name("default", "upload"), "lock");
        assert_eq!(name("default", "anything"), "step");
        assert_eq!(name("eu", "user.login"), "proposal", "the namespace's own come first");
        assert_eq!(name("eu", "user.rename"), "conservative");
    }

    #[test]
    fn defaults_come_last() {
        let mut set = set();
        set.root_mut().operations.clear();
        assert_eq!(set.policy_for("default", "x").0, "background");
        assert_eq!(set.policy_for("eu", "x").0, "notification");
        assert_eq!(PolicySet::default().policy_for("default", "x").0, "standard");
        assert_eq!(PolicySet::default().policy_for_step("default", "x").0, "step");
    }

    #[test]
    fn every_preset_is_in_the_default_set() {
        assert_eq!(PolicySet::default().policies().len(), PRESETS.len());
    }

    #[test]
    fn the_id_follows_the_content() {
        assert_eq!(set().id(), set().id());
        assert_ne!(set().id(), PolicySet::default().id());
        let mut renamed = set();
        renamed.root_mut().default = Some("step".to_owned());
        assert_ne!(renamed.id(), set().id());
        assert_eq!(set().id().to_string().len(), 64);
    }
}

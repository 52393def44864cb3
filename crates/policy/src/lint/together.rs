//! Checks of operations and policies in combination.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use super::{Finding, Severity};
use crate::set::Scope;
use crate::{Operation, PolicySet, glob};

/// Returns the findings that concern operations and policies in combination.
pub(super) fn findings(set: &PolicySet) -> Vec<Finding> {
    let own = set.policies().keys().filter(|name| set.is_own(name));
    let mut findings: Vec<Finding> = own.filter_map(|name| unused(set, name)).collect();
    for (namespace, scope) in scopes(set) {
        findings.extend(ambiguous(namespace, scope));
        for (name, operation) in &scope.operations {
            findings.extend(outlasts(set, &qualified(namespace, name), operation));
        }
    }
    findings.extend(two_caps(set));
    findings
}

fn scopes(set: &PolicySet) -> impl Iterator<Item = (&str, &Scope)> {
    let namespaces = set.namespaces().iter().map(|(name, scope)| (name.as_str(), scope));
    core::iter::once(("", set.root())).chain(namespaces)
}

fn qualified(namespace: &str, operation: &str) -> String {
    if namespace.is_empty() { operation.to_owned() } else { format!("{namespace}/{operation}") }
}

fn unused(set: &PolicySet, name: &str) -> Option<Finding> {
    let is_child = |child: &String| child != name && set.parent(child) == Some(name);
    let has_children = set.policies().keys().any(is_child);
    let is_default = set.root().default.as_deref().unwrap_or(PolicySet::DEFAULT_POLICY) == name;
    let uses = |scope: &Scope| {
        scope.default.as_deref() == Some(name)
            || scope.operations.values().any(|operation| operation.policy == name)
    };
    if set.root().operations.is_empty() && set.namespaces().is_empty()
        || scopes(set).any(|(_, scope)| uses(scope))
        || has_children
        || is_default
    {
        return None;
    }
    Some(Finding {
        code: "unused-policy",
        severity: Severity::Note,
        subject: format!("policy {name}"),
        message: "is used by no operation".to_owned(),
        remedy: "name it in [operations], or remove it".to_owned(),
    })
}

/// Finds waits that outlast the caller's timeout or lease.
fn outlasts(set: &PolicySet, subject: &str, operation: &Operation) -> Vec<Finding> {
    let Some(policy) = set.policy(&operation.policy) else { return Vec::new() };
    let deadline = policy.deadline().unwrap_or(Duration::MAX);
    let total = policy.explain().total;
    let bounded = |us: Option<u64>| us.map_or(Duration::MAX, Duration::from_micros).min(deadline);
    let (low, high) = (bounded(total.map(|total| total.low_us)), bounded(total.map(|total| total.high_us)));
    let judge = |code, limit: Option<Duration>, what: &str| {
        let limit = limit.filter(|limit| high > *limit)?;
        let (severity, verb) =
            if low > limit { (Severity::Error, "wait") } else { (Severity::Warning, "may wait") };
        Some(Finding {
            code,
            severity,
            subject: format!("operation {subject}"),
            message: format!(
                "the retries of policy {} {verb} for {}, longer than the {what} of {limit:?}",
                operation.policy,
                span(low, high)
            ),
            remedy: format!("give the policy a deadline below {limit:?}, or fewer tries"),
        })
    };
    let timeout = judge("longer-than-timeout", operation.timeout, "caller's timeout");
    let lease = judge("longer-than-lease", operation.lease, "lease");
    timeout.into_iter().chain(lease).collect()
}

fn span(low: Duration, high: Duration) -> String {
    if high == Duration::MAX { "ever".to_owned() } else { format!("{low:?} to {high:?}") }
}

/// Finds pairs of equally specific patterns in one scope that overlap and name different policies.
fn ambiguous(namespace: &str, scope: &Scope) -> Vec<Finding> {
    let patterns: Vec<_> = scope.operations.iter().filter(|(name, _)| glob::is_pattern(name)).collect();
    let mut findings = Vec::new();
    for (index, (left, left_operation)) in patterns.iter().enumerate() {
        for (right, right_operation) in patterns.iter().skip(index + 1) {
            let differ = left_operation.policy != right_operation.policy;
            let equally_specific = glob::specificity(left) == glob::specificity(right);
            if differ && equally_specific && glob::overlap(left, right) {
                findings.push(Finding {
                    code: "ambiguous-operation",
                    severity: Severity::Warning,
                    subject: format!("operation {}", qualified(namespace, left)),
                    message: format!(
                        "\"{left}\" and \"{right}\" say equally much about some names; \"{left}\" wins"
                    ),
                    remedy: "spell one of them out further".to_owned(),
                });
            }
        }
    }
    findings
}

/// Finds operations whose cap depends on the namespace.
fn two_caps(set: &PolicySet) -> Vec<Finding> {
    let names: BTreeSet<&str> =
        scopes(set).flat_map(|(_, scope)| scope.operations.keys()).map(String::as_str).collect();
    let mut findings = Vec::new();
    for name in names {
        let mut caps = Vec::new();
        for (namespace, scope) in scopes(set) {
            // A namespace without an entry for the name uses the cap of the root scope.
            let Some(operation) = scope.find(name) else { continue };
            let Some(policy) = set.policy(&operation.policy) else { continue };
            let place = if namespace.is_empty() { "everywhere else" } else { namespace };
            caps.push((place.to_owned(), policy.cap()));
        }
        if caps.windows(2).any(|pair| matches!(pair, [a, b] if a.1 != b.1)) {
            findings.push(Finding {
                code: "two-caps",
                severity: Severity::Warning,
                subject: format!("operation {name}"),
                message: format!("has different caps: {}", listed(&caps)),
                remedy: "use one policy, or policies with one cap, for one operation".to_owned(),
            });
        }
    }
    findings
}

fn listed(caps: &[(String, Duration)]) -> String {
    let each: Vec<_> = caps.iter().map(|(place, cap)| format!("{cap:?} in {place}")).collect();
    each.join(", ")
}

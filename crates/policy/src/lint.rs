//! Checks a policy file for errors that caused outages in earlier systems.
//!
//! | code | severity | finding |
//! |---|---|---|
//! | `never-ends` | error | unlimited attempts without a deadline |
//! | `longer-than-timeout` | error, warning | waits that outlast the caller's timeout: certainly, or possibly |
//! | `longer-than-lease` | error, warning | waits that outlast the caller's lease: certainly, or possibly |
//! | `attempts-beyond-deadline` | warning | attempts that never fit before the deadline |
//! | `no-jitter` | warning | callers that fail together retry together |
//! | `two-caps` | warning | one operation with different caps in different namespaces |
//! | `ambiguous-operation` | warning | two equally specific patterns that match the same name |
//! | `clips-retry-after` | note | retries earlier than the server asked |
//! | `cap-never-binds` | note | a cap that no wait reaches |
//! | `unused-policy` | note | a policy that no operation uses |

use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use crate::set::PolicyScope;
use crate::{Beyond, Growth, OperationSettings, Policy, PolicySet, glob};

/// The severity of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    /// Useful to know.
    Note,
    /// Probably a mistake.
    Warning,
    /// Leads to a failure.
    Error,
}

impl Severity {
    /// Returns the word used in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A finding in a policy file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The stable identifier of this kind of finding.
    pub code: &'static str,
    /// The severity.
    pub severity: Severity,
    /// The policy or operation of the finding.
    pub subject: String,
    /// The description of the problem.
    pub message: String,
    /// The remedy.
    pub remedy: String,
}

/// Checks a whole set: its own policies and all its operations. Returns the most severe findings first.
///
/// Presets are checked only where an operation uses them.
pub fn lint(set: &PolicySet) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, policy) in set.policies().iter().filter(|(name, _)| set.is_own(name)) {
        // A policy with its parent's name extends the preset.
        let preset = || Policy::preset(name).map(|preset| preset.cap());
        let parents_cap = match set.parent(name) {
            Some(parent) if parent == name => preset(),
            parent => parent.and_then(|parent| set.policy(parent)).map(|parent| parent.cap()),
        };
        let has_inherited_cap = parents_cap == Some(policy.cap());
        let is_its_own = |found: &Finding| found.code != "cap-never-binds" || !has_inherited_cap;
        findings.extend(lint_policy(name, policy).into_iter().filter(is_its_own));
    }
    findings.extend(lint_combinations(set));
    findings.sort_by_key(|finding| core::cmp::Reverse(finding.severity));
    findings
}

/// Checks one policy on its own.
pub fn lint_policy(name: &str, policy: &Policy) -> Vec<Finding> {
    let subject = format!("policy {name}");
    let find = |code, severity, message: String, remedy: &str| Finding {
        code,
        severity,
        subject: subject.clone(),
        message,
        remedy: remedy.to_owned(),
    };
    let mut findings = Vec::new();
    if policy.attempts() == Policy::UNLIMITED && policy.deadline().is_none() {
        let message = "retries without end: attempts are unlimited and there is no deadline".to_owned();
        findings.push(find("never-ends", Severity::Error, message, "set attempts or a deadline"));
    }
    if waits_alike(policy) {
        let message = "has no jitter: callers that fail together retry together".to_owned();
        let remedy = "use jitter = \"full\", or keep it if there is only ever one caller";
        findings.push(find("no-jitter", Severity::Warning, message, remedy));
    }
    if let Some(made) = attempts_before_deadline(policy) {
        let (attempts, deadline) = (policy.attempts(), policy.deadline().unwrap_or_default());
        let message = format!(
            "grants {attempts} attempts, but only {made} can be made within its deadline of {deadline:?}"
        );
        let remedy = "lower attempts, shorten the waits or raise the deadline";
        findings.push(find("attempts-beyond-deadline", Severity::Warning, message, remedy));
    }
    if policy.retry_after().beyond == Beyond::Clip {
        let limit = policy.retry_after().limit;
        let message = format!("retries after {limit:?} even if the server asks for a longer wait");
        findings.push(find(
            "clips-retry-after",
            Severity::Note,
            message,
            "use beyond = \"wait\" or \"give_up\"",
        ));
    }
    if let Some(longest) = longest_below_cap(policy) {
        let message = format!("never reaches its cap of {:?}: its longest wait is {longest:?}", policy.cap());
        findings.push(find(
            "cap-never-binds",
            Severity::Note,
            message,
            "lower the cap, or keep it as a guard",
        ));
    }
    findings
}

/// Returns whether all callers wait for exactly the same time.
fn waits_alike(policy: &Policy) -> bool {
    let explanation = policy.explain();
    let no_choice = explanation.waits.iter().all(|wait| wait.window.low_us() == wait.window.high_us());
    no_choice && explanation.waits.iter().any(|wait| wait.window.high_us() > 0)
}

/// Returns the largest number of attempts that fit before the deadline, if the policy grants more.
fn attempts_before_deadline(policy: &Policy) -> Option<u32> {
    let waits = policy.attempts().saturating_sub(1);
    let possible = policy.explain().possible;
    (policy.attempts() != Policy::UNLIMITED && possible < waits).then_some(possible + 1)
}

/// Returns the longest wait, if it stays below a declared cap.
fn longest_below_cap(policy: &Policy) -> Option<Duration> {
    let declared = policy.declared_cap()?;
    let grows = !matches!(policy.growth(), Growth::Constant { .. } | Growth::List { .. });
    let explanation = policy.explain();
    let longest = explanation.waits.iter().map(|wait| wait.window.high()).max()?;
    // Shares are rounded down, so a window that ends a microsecond below the cap has reached it.
    let is_below = longest + Duration::from_micros(2) < declared;
    (grows && !explanation.more && is_below).then_some(longest)
}

/// Returns the findings that concern operations and policies in combination.
fn lint_combinations(set: &PolicySet) -> Vec<Finding> {
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

fn scopes(set: &PolicySet) -> impl Iterator<Item = (&str, &PolicyScope)> {
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
    let uses = |scope: &PolicyScope| {
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
fn outlasts(set: &PolicySet, subject: &str, operation: &OperationSettings) -> Vec<Finding> {
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
            remedy: format!("give the policy a deadline below {limit:?}, or fewer attempts"),
        })
    };
    let timeout = judge("longer-than-timeout", operation.timeout, "caller's timeout");
    let lease = judge("longer-than-lease", operation.lease, "lease");
    timeout.into_iter().chain(lease).collect()
}

fn span(low: Duration, high: Duration) -> String {
    if high == Duration::MAX { "an unlimited time".to_owned() } else { format!("{low:?} to {high:?}") }
}

/// Finds pairs of equally specific patterns in one scope that overlap and name different policies.
fn ambiguous(namespace: &str, scope: &PolicyScope) -> Vec<Finding> {
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
                        "\"{left}\" and \"{right}\" are equally specific for some names; \"{left}\" applies"
                    ),
                    remedy: "make one of the patterns more specific".to_owned(),
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
            let place = if namespace.is_empty() { "all other namespaces" } else { namespace };
            caps.push((place.to_owned(), policy.cap()));
        }
        if caps.windows(2).any(|pair| matches!(pair, [a, b] if a.1 != b.1)) {
            findings.push(Finding {
                code: "two-caps",
                severity: Severity::Warning,
                subject: format!("operation {name}"),
                message: format!("has different caps: {}", listed(&caps)),
                remedy: "use the same cap for the operation in every namespace".to_owned(),
            });
        }
    }
    findings
}

fn listed(caps: &[(String, Duration)]) -> String {
    let each: Vec<_> = caps.iter().map(|(place, cap)| format!("{cap:?} in {place}")).collect();
    each.join(", ")
}

#[cfg(test)]
mod tests {
    use alloc::borrow::ToOwned;
    use alloc::vec;
    use core::time::Duration;

    use super::*;
    use crate::{Beyond, Growth, Jitter, OperationSettings};

    const SECOND: Duration = Duration::from_secs(1);

    fn codes(findings: &[Finding]) -> Vec<&'static str> {
        findings.iter().map(|finding| finding.code).collect()
    }

    fn with(operations: &[(&str, &str, OperationSettings)]) -> PolicySet {
        let mut set = PolicySet::default();
        for (namespace, name, operation) in operations {
            let scope = if namespace.is_empty() { set.root_mut() } else { set.namespace_mut(*namespace) };
            scope.operations.insert((*name).to_owned(), operation.clone());
        }
        set
    }

    #[test]
    fn findings_of_one_policy() {
        let base = Policy::builder(Growth::exponential(SECOND, 2.0)).cap(SECOND * 8).attempts(5);
        let found = |builder: crate::PolicyBuilder| codes(&lint_policy("x", &builder.build().unwrap()));
        assert_eq!(found(base.clone()), Vec::<&str>::new());
        assert_eq!(found(base.clone().jitter(Jitter::None)), ["no-jitter"]);
        assert_eq!(found(base.clone().jitter(Jitter::Proportional(0.0))), ["no-jitter"]);
        assert_eq!(found(base.clone().attempts(Policy::UNLIMITED)), ["never-ends"]);
        assert_eq!(found(base.clone().attempts(Policy::UNLIMITED).deadline(SECOND)), Vec::<&str>::new());
        let equal = base.clone().jitter(Jitter::Equal);
        assert_eq!(found(equal.clone().deadline(SECOND * 3)), ["attempts-beyond-deadline"]);
        assert_eq!(found(equal.deadline(SECOND * 30)), Vec::<&str>::new());
        assert_eq!(found(base.clone().cap(SECOND * 60)), ["cap-never-binds"]);
        let clip = crate::RetryAfter { beyond: Beyond::Clip, ..crate::RetryAfter::default() };
        assert_eq!(found(base.retry_after(clip)), ["clips-retry-after"]);
    }

    #[test]
    fn an_operation_with_two_caps_is_found() {
        let set = with(&[
            ("", "user.login", OperationSettings::new("aggressive")),
            ("eu", "user.login", OperationSettings::new("standard")),
        ]);
        let findings = lint(&set);
        assert_eq!(codes(&findings), ["two-caps"]);
        assert!(
            findings[0].message.contains("10s in all other namespaces, 30s in eu"),
            "{}",
            findings[0].message
        );
        let same = with(&[
            ("", "a", OperationSettings::new("conservative")),
            ("eu", "a", OperationSettings::new("standard")),
        ]);
        assert_eq!(lint(&same), vec![]);
    }

    #[test]
    fn two_caps_by_a_pattern_and_a_name_are_found() {
        let set = with(&[
            ("", "user.*", OperationSettings::new("aggressive")),
            ("eu", "user.login", OperationSettings::new("standard")),
        ]);
        assert_eq!(codes(&lint(&set)), ["two-caps"]);
    }

    #[test]
    fn hundreds_of_attempts_are_all_counted() {
        let patient = Policy::builder(Growth::constant(SECOND)).jitter(Jitter::Equal).attempts(500);
        let found = |builder: crate::PolicyBuilder| lint_policy("x", &builder.build().unwrap());
        let beyond = found(patient.clone().deadline(SECOND * 200));
        assert_eq!(codes(&beyond), ["attempts-beyond-deadline"]);
        assert!(beyond[0].message.contains("only 400 can be made"), "{}", beyond[0].message);
        let mut set = PolicySet::default();
        set.define("x", patient.build().unwrap());
        let operation = OperationSettings { timeout: Some(SECOND * 200), ..OperationSettings::new("x") };
        set.root_mut().operations.insert("a".to_owned(), operation);
        assert_eq!(codes(&lint(&set)), ["longer-than-timeout"]);
    }

    #[test]
    fn waits_beyond_the_timeout_or_the_lease_are_found() {
        let timed =
            |timeout| OperationSettings { timeout: Some(timeout), ..OperationSettings::new("standard") };
        let severity = |operation| {
            lint(&with(&[("", "a", operation)])).first().map(|found| (found.code, found.severity))
        };
        assert_eq!(severity(timed(SECOND * 5)), Some(("longer-than-timeout", Severity::Error)));
        assert_eq!(severity(timed(SECOND * 20)), Some(("longer-than-timeout", Severity::Warning)));
        assert_eq!(severity(timed(SECOND * 23)), None);
        let leased = OperationSettings { lease: Some(SECOND), ..OperationSettings::new("standard") };
        assert_eq!(severity(leased), Some(("longer-than-lease", Severity::Error)));
    }

    #[test]
    fn equally_specific_patterns_are_found() {
        let set = with(&[
            ("", "user.*", OperationSettings::new("standard")),
            ("", "*.user", OperationSettings::new("step")),
        ]);
        assert_eq!(codes(&lint(&set)), ["ambiguous-operation"]);
        let apart = with(&[
            ("", "user.*", OperationSettings::new("standard")),
            ("", "team.*", OperationSettings::new("step")),
        ]);
        assert_eq!(lint(&apart), vec![]);
    }

    #[test]
    fn a_policy_that_replaces_a_preset_is_checked_on_its_own() {
        let set =
            PolicySet::from_toml("[policies.standard]\nextends = \"standard\"\n[operations]\na = \"lock\"\n")
                .unwrap();
        assert_eq!(lint(&set), vec![]);
        let text = "[policies.lock]\nextends = \"lock\"\ncap = \"10m\"\n[operations]\na = \"step\"\n";
        assert_eq!(codes(&lint(&PolicySet::from_toml(text).unwrap())), ["cap-never-binds", "unused-policy"]);
    }

    #[test]
    fn an_unused_policy_is_found() {
        let mut set = with(&[("", "a", OperationSettings::new("standard"))]);
        set.define("mine", Policy::standard());
        assert!(codes(&lint(&set)).contains(&"unused-policy"));
        set.root_mut().default = Some("mine".to_owned());
        assert!(!codes(&lint(&set)).contains(&"unused-policy"));
    }
}

//! Finds in a policy file what five systems suffered from.
//!
//! | code | severity | what it finds |
//! |---|---|---|
//! | `never-ends` | error | unlimited tries and no deadline |
//! | `longer-than-timeout` | error, warning | waits that outlast the caller's timeout: surely, or possibly |
//! | `longer-than-lease` | error, warning | waits that outlast the lease held meanwhile: surely, or possibly |
//! | `attempts-beyond-deadline` | warning | tries that can never be made before the deadline |
//! | `no-jitter` | warning | callers that fail together try again together |
//! | `two-caps` | warning | one operation with different caps in different namespaces |
//! | `ambiguous-operation` | warning | two patterns that say equally much about one name |
//! | `clips-retry-after` | note | calls again before the server wants it |
//! | `cap-never-binds` | note | a cap no wait ever reaches |
//! | `unused-policy` | note | a policy no operation uses |

use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use crate::set::Scope;
use crate::{Beyond, Explanation, Growth, Operation, Policy, PolicySet, glob};

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// Probably not what is wanted.
    Warning,
    /// Will go wrong.
    Error,
}

impl Severity {
    /// The word used in output.
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

/// Something found in a policy file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// A stable word for this kind of finding.
    pub code: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// The policy or operation it is about.
    pub subject: String,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub remedy: String,
}

/// Looks at a whole set: its own policies and all its operations. The worst comes first.
///
/// Presets are looked at where an operation uses them, not for their own sake.
pub fn lint(set: &PolicySet) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, policy) in set.policies().iter().filter(|(name, _)| set.is_own(name)) {
        let has_cap_of_its_own =
            set.parent(name).and_then(|parent| set.policy(parent)).map(|p| p.cap()) != Some(policy.cap());
        let own = lint_policy(name, policy)
            .into_iter()
            .filter(|found| found.code != "cap-never-binds" || has_cap_of_its_own);
        findings.extend(own);
        findings.extend(unused(set, name));
    }
    for (namespace, scope) in scopes(set) {
        findings.extend(ambiguous(namespace, scope));
        for (name, operation) in &scope.operations {
            findings.extend(outlasts(set, &qualified(namespace, name), operation));
        }
    }
    findings.extend(two_caps(set));
    findings.sort_by_key(|finding| core::cmp::Reverse(finding.severity));
    findings
}

/// Looks at one policy by itself.
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
        let message = "tries for ever: attempts are unlimited and there is no deadline".to_owned();
        findings.push(find("never-ends", Severity::Error, message, "set attempts or a deadline"));
    }
    if waits_alike(policy) {
        let message = "has no jitter: callers that fail together try again together".to_owned();
        let remedy = "use jitter = \"full\", or keep it if there is only ever one caller";
        findings.push(find("no-jitter", Severity::Warning, message, remedy));
    }
    if let Some(made) = tries_before_deadline(policy) {
        let (attempts, deadline) = (policy.attempts(), policy.deadline().unwrap_or_default());
        let message = format!(
            "grants {attempts} tries, but only {made} can be made within its deadline of {deadline:?}"
        );
        let remedy = "lower attempts, shorten the waits or raise the deadline";
        findings.push(find("attempts-beyond-deadline", Severity::Warning, message, remedy));
    }
    if policy.retry_after().beyond == Beyond::Clip {
        let limit = policy.retry_after().limit;
        let message = format!("calls again after {limit:?} even when the server asked for more");
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
            "lower the cap, or know that it is only a guard",
        ));
    }
    findings
}

/// Whether everybody waits for exactly the same time.
fn waits_alike(policy: &Policy) -> bool {
    let explanation = policy.explain();
    let no_choice = explanation.waits.iter().all(|wait| wait.window.low_us() == wait.window.high_us());
    no_choice && explanation.waits.iter().any(|wait| wait.window.high_us() > 0)
}

/// How many tries can be made at best, if that is fewer than the policy grants.
fn tries_before_deadline(policy: &Policy) -> Option<u32> {
    let deadline = policy.deadline()?;
    let explanation = policy.explain();
    let total = explanation.total?;
    if Duration::from_micros(total.low_us) < deadline {
        return None;
    }
    let in_time = explanation.waits.iter().filter(|wait| Duration::from_micros(wait.total_low_us) < deadline);
    // Beyond the listed waits all are alike.
    let listed = u32::try_from(in_time.count()).unwrap_or(u32::MAX);
    let unlisted = if listed < Explanation::MAX_WAITS { 0 } else { unlisted_in_time(&explanation, deadline) };
    Some(listed.saturating_add(unlisted).saturating_add(1))
}

fn unlisted_in_time(explanation: &Explanation, deadline: Duration) -> u32 {
    let Some(last) = explanation.waits.last() else { return 0 };
    let left = deadline.saturating_sub(Duration::from_micros(last.total_low_us)).as_micros();
    u32::try_from(left / u128::from(last.window.low_us().max(1))).unwrap_or(u32::MAX)
}

/// The longest wait, if it is shorter than a cap that was meant to bind.
fn longest_below_cap(policy: &Policy) -> Option<Duration> {
    let declared = policy.declared_cap()?;
    let grows = !matches!(policy.growth(), Growth::Constant { .. } | Growth::List { .. });
    let explanation = policy.explain();
    let longest = explanation.waits.iter().map(|wait| wait.window.high()).max()?;
    // Shares are rounded down, so a window that ends a microsecond below the cap has met it.
    let is_below = longest + Duration::from_micros(2) < declared;
    (grows && !explanation.more && is_below).then_some(longest)
}

fn scopes(set: &PolicySet) -> impl Iterator<Item = (&str, &Scope)> {
    let namespaces = set.namespaces().iter().map(|(name, scope)| (name.as_str(), scope));
    core::iter::once(("", set.root())).chain(namespaces)
}

fn qualified(namespace: &str, operation: &str) -> String {
    if namespace.is_empty() { operation.to_owned() } else { format!("{namespace}/{operation}") }
}

fn unused(set: &PolicySet, name: &str) -> Option<Finding> {
    let has_children = set.policies().keys().any(|child| set.parent(child) == Some(name));
    let uses = |scope: &Scope| {
        scope.default.as_deref() == Some(name)
            || scope.operations.values().any(|operation| operation.policy == name)
    };
    if set.root().operations.is_empty() && set.namespaces().is_empty()
        || scopes(set).any(|(_, scope)| uses(scope))
        || has_children
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

/// Waits that outlast what the caller has.
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
                "the retries of policy {} {verb} for {low:?} to {high:?}, longer than the {what} of {limit:?}",
                operation.policy
            ),
            remedy: format!("give the policy a deadline below {limit:?}, or fewer tries"),
        })
    };
    let timeout = judge("longer-than-timeout", operation.timeout, "caller's timeout");
    let lease = judge("longer-than-lease", operation.lease, "lease");
    timeout.into_iter().chain(lease).collect()
}

/// Patterns of one scope that say equally much about the same names, and differ.
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

/// The same operation under different caps, depending on the namespace.
fn two_caps(set: &PolicySet) -> Vec<Finding> {
    let names: BTreeSet<&str> =
        scopes(set).flat_map(|(_, scope)| scope.operations.keys()).map(String::as_str).collect();
    let mut findings = Vec::new();
    for name in names {
        let mut caps = Vec::new();
        for (namespace, scope) in scopes(set) {
            // A namespace that says nothing about the name has everybody's cap.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Jitter;
    use alloc::vec;

    const SECOND: Duration = Duration::from_secs(1);

    fn codes(findings: &[Finding]) -> Vec<&'static str> {
        findings.iter().map(|finding| finding.code).collect()
    }

    fn with(operations: &[(&str, &str, Operation)]) -> PolicySet {
        let mut set = PolicySet::default();
        for (namespace, name, operation) in operations {
            let scope = if namespace.is_empty() { set.root_mut() } else { set.namespace_mut(*namespace) };
            scope.operations.insert((*name).to_owned(), operation.clone());
        }
        set
    }

    #[test]
    fn policies_by_themselves() {
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
    fn the_seeds_own_disease_one_operation_with_two_caps() {
        let set = with(&[
            ("", "user.login", Operation::new("aggressive")),
            ("eu", "user.login", Operation::new("standard")),
        ]);
        let findings = lint(&set);
        assert_eq!(codes(&findings), ["two-caps"]);
        assert!(findings[0].message.contains("10s in everywhere else, 30s in eu"), "{}", findings[0].message);
        let same =
            with(&[("", "a", Operation::new("conservative")), ("eu", "a", Operation::new("standard"))]);
        assert_eq!(lint(&same), vec![]);
    }

    #[test]
    fn a_pattern_and_a_name_can_be_two_caps_too() {
        let set = with(&[
            ("", "user.*", Operation::new("aggressive")),
            ("eu", "user.login", Operation::new("standard")),
        ]);
        assert_eq!(codes(&lint(&set)), ["two-caps"]);
    }

    #[test]
    fn many_tries_are_counted_to_the_end() {
        let patient = Policy::builder(Growth::constant(SECOND)).jitter(Jitter::Equal).attempts(500);
        let found = |builder: crate::PolicyBuilder| lint_policy("x", &builder.build().unwrap());
        let beyond = found(patient.clone().deadline(SECOND * 200));
        assert_eq!(codes(&beyond), ["attempts-beyond-deadline"]);
        assert!(beyond[0].message.contains("only 401 can be made"), "{}", beyond[0].message);
        let mut set = PolicySet::default();
        set.define("x", patient.build().unwrap());
        let operation = Operation { timeout: Some(SECOND * 200), ..Operation::new("x") };
        set.root_mut().operations.insert("a".to_owned(), operation);
        assert_eq!(codes(&lint(&set)), ["longer-than-timeout"]);
    }

    #[test]
    fn schedules_that_outlast_their_caller_or_their_lease() {
        let timed = |timeout| Operation { timeout: Some(timeout), ..Operation::new("standard") };
        let severity = |operation| {
            lint(&with(&[("", "a", operation)])).first().map(|found| (found.code, found.severity))
        };
        assert_eq!(severity(timed(SECOND * 5)), Some(("longer-than-timeout", Severity::Error)));
        assert_eq!(severity(timed(SECOND * 20)), Some(("longer-than-timeout", Severity::Warning)));
        assert_eq!(severity(timed(SECOND * 23)), None);
        let leased = Operation { lease: Some(SECOND), ..Operation::new("standard") };
        assert_eq!(severity(leased), Some(("longer-than-lease", Severity::Error)));
    }

    #[test]
    fn patterns_that_say_equally_much() {
        let set = with(&[("", "user.*", Operation::new("standard")), ("", "*.user", Operation::new("step"))]);
        assert_eq!(codes(&lint(&set)), ["ambiguous-operation"]);
        let apart =
            with(&[("", "user.*", Operation::new("standard")), ("", "team.*", Operation::new("step"))]);
        assert_eq!(lint(&apart), vec![]);
    }

    #[test]
    fn policies_nobody_uses() {
        let mut set = with(&[("", "a", Operation::new("standard"))]);
        set.define("mine", Policy::standard());
        assert!(codes(&lint(&set)).contains(&"unused-policy"));
        set.root_mut().default = Some("mine".to_owned());
        assert!(!codes(&lint(&set)).contains(&"unused-policy"));
    }
}

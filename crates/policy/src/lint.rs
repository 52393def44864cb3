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

mod alone;
mod together;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::{Policy, PolicySet};

pub use alone::lint_policy;

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
    findings.extend(together::findings(set));
    findings.sort_by_key(|finding| core::cmp::Reverse(finding.severity));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Beyond, Growth, Jitter, Operation};
    use alloc::borrow::ToOwned;
    use alloc::vec;
    use core::time::Duration;

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
        assert!(beyond[0].message.contains("only 400 can be made"), "{}", beyond[0].message);
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
    fn a_policy_in_a_presets_place_is_used_and_judged_by_itself() {
        let set =
            PolicySet::from_toml("[policies.standard]\nextends = \"standard\"\n[operations]\na = \"lock\"\n")
                .unwrap();
        assert_eq!(lint(&set), vec![]);
        let text = "[policies.lock]\nextends = \"lock\"\ncap = \"10m\"\n[operations]\na = \"step\"\n";
        assert_eq!(codes(&lint(&PolicySet::from_toml(text).unwrap())), ["cap-never-binds", "unused-policy"]);
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

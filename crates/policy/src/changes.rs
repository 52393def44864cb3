//! Compares two policy sets.

use std::collections::BTreeSet;

use crate::file::format_duration;
use crate::{Operation, PolicySet, Scope};

/// The difference in one subject: a policy, an operation, a default or the class of a code.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Change {
    /// The subject, such as `policy payments` or `operation card.*`.
    pub subject: String,
    /// The lines that only the earlier set has.
    pub before: Vec<String>,
    /// The lines that only the later set has.
    pub after: Vec<String>,
}

/// Returns the differences between two sets. It compares the active values: presets count, and so do the
/// values that `extends` brings in.
///
/// ```
/// use holdoff_policy::{PolicySet, changes};
///
/// let after = PolicySet::from_toml("[policies.lock]\nextends = \"lock\"\nattempts = 3")?;
/// let found = changes(&PolicySet::default(), &after);
/// assert_eq!((found.len(), found[0].subject.as_str()), (1, "policy lock"));
/// assert_eq!(found[0].after, ["attempts = 3"]);
/// # Ok::<(), holdoff_policy::Problems>(())
/// ```
pub fn changes(before: &PolicySet, after: &PolicySet) -> Vec<Change> {
    let (was, is) = (facts(before), facts(after));
    let subjects: BTreeSet<&String> = was.iter().chain(&is).map(|(subject, _)| subject).collect();
    let lines = |facts: &[(String, Vec<String>)], subject: &String| {
        facts.iter().find(|(found, _)| found == subject).map(|(_, lines)| lines.clone()).unwrap_or_default()
    };
    let each = subjects.into_iter().map(|subject| (subject, lines(&was, subject), lines(&is, subject)));
    each.filter(|(_, was, is)| was != is)
        .map(|(subject, was, is)| Change {
            subject: subject.clone(),
            before: was.iter().filter(|line| !is.contains(line)).cloned().collect(),
            after: is.iter().filter(|line| !was.contains(line)).cloned().collect(),
        })
        .collect()
}

/// Returns the active values by subject.
fn facts(set: &PolicySet) -> Vec<(String, Vec<String>)> {
    let policies = set.policies().iter().map(|(name, policy)| {
        (format!("policy {name}"), policy.to_toml().lines().map(str::to_owned).collect())
    });
    let mut facts: Vec<(String, Vec<String>)> = policies.collect();
    add_scope(&mut facts, "", set.root());
    for (namespace, scope) in set.namespaces() {
        add_scope(&mut facts, &format!("namespace {namespace}, "), scope);
    }
    for (kind, code, class) in set.classes().overrides() {
        facts.push((format!("class of {kind} {code}"), vec![class.name().to_owned()]));
    }
    facts
}

fn add_scope(facts: &mut Vec<(String, Vec<String>)>, place: &str, scope: &Scope) {
    if let Some(default) = &scope.default {
        facts.push((format!("{place}default"), vec![default.clone()]));
    }
    for (name, Operation { policy, timeout, lease }) in &scope.operations {
        let mut lines = vec![policy.clone()];
        lines.extend(timeout.map(|time| format!("timeout = \"{}\"", format_duration(time))));
        lines.extend(lease.map(|time| format!("lease = \"{}\"", format_duration(time))));
        facts.push((format!("{place}operation {name}"), lines));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(before: &str, after: &str) -> Vec<String> {
        let set = |text| PolicySet::from_toml(text).unwrap();
        let line = |Change { subject, before, after }: Change| {
            format!("{subject}: {} → {}", before.join("; "), after.join("; "))
        };
        changes(&set(before), &set(after)).into_iter().map(line).collect()
    }

    #[test]
    fn only_what_is_different_is_said() {
        let file = "[policies.a]\nextends = \"standard\"\ncap = \"10s\"\n[operations]\n\"x\" = \"a\"";
        assert_eq!(said(file, file), Vec::<String>::new());
        assert_eq!(said(file, &file.replace("10s", "20s")), ["policy a: cap = \"10s\" → cap = \"20s\""]);
        assert_eq!(said(file, &file.replace("= \"a\"", "= \"lock\"")), ["operation x: a → lock"]);
        let eu = "[namespaces.eu]\ndefault = \"lock\"\n[classes]\nhttp.418 = \"permanent\"";
        assert_eq!(
            said("", eu),
            ["class of http 418:  → permanent", "namespace eu, default:  → lock"],
            "what is new has nothing before"
        );
    }
}

//! Writes policies in the format that the reader accepts, and compares two sets by their written lines.

use std::collections::BTreeSet;
use std::fmt::Write;

use toml_writer::{ToTomlKey, ToTomlValue};

use super::units::format_duration;
use crate::{Growth, Jitter, OperationSettings, Policy, PolicyScope, PolicySet};

impl PolicySet {
    /// Returns the set as a policy file: its own definitions, without the presets.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        if let Some(default) = &self.root().default {
            let _ = writeln!(text, "default = {}", default.to_toml_value());
        }
        for (name, policy) in self.policies().iter().filter(|(name, _)| self.is_own(name)) {
            let _ = writeln!(text, "\n[policies.{}]\n{}", name.to_toml_key(), policy.to_toml().trim_end());
        }
        write_operations(&mut text, "operations", self.root());
        for (name, scope) in self.namespaces() {
            let place = format!("namespaces.{}", name.to_toml_key());
            let _ = writeln!(text, "\n[{place}]");
            if let Some(default) = &scope.default {
                let _ = writeln!(text, "default = {}", default.to_toml_value());
            }
            write_operations(&mut text, &format!("{place}.operations"), scope);
        }
        let overrides = self.classes().overrides();
        if !overrides.is_empty() {
            text.push_str("\n[classes]\n");
        }
        for (kind, code, class) in overrides {
            let _ = writeln!(text, "{kind}.{} = \"{class}\"", code.to_toml_key());
        }
        text.trim_start().to_owned()
    }
}

fn write_operations(text: &mut String, place: &str, scope: &PolicyScope) {
    if scope.operations.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n[{place}]");
    for (name, OperationSettings { policy, timeout, lease }) in &scope.operations {
        let mut value = policy.to_toml_value();
        if timeout.is_some() || lease.is_some() {
            value = format!("{{ policy = {value}");
            for (key, duration) in [("timeout", timeout), ("lease", lease)] {
                if let Some(duration) = duration {
                    let _ = write!(value, ", {key} = \"{}\"", format_duration(*duration));
                }
            }
            value.push_str(" }");
        }
        let _ = writeln!(text, "{} = {value}", name.to_toml_key());
    }
}

impl Policy {
    /// Returns the policy as the lines of its table in a policy file. It omits the cap if the policy does not
    /// declare one.
    pub fn to_toml(&self) -> String {
        let mut lines = vec![format!("growth = \"{}\"", self.growth().name())];
        lines.extend(growth_lines(self.growth()));
        lines.extend(self.declared_cap().map(|cap| format!("cap = \"{}\"", format_duration(cap))));
        lines.push(format!("jitter = {}", jitter_value(self.jitter())));
        lines.push(match self.attempts() {
            Self::UNLIMITED => "attempts = \"unlimited\"".to_owned(),
            attempts => format!("attempts = {attempts}"),
        });
        lines.extend(self.deadline().map(|deadline| format!("deadline = \"{}\"", format_duration(deadline))));
        let rule = self.retry_after();
        lines.push(format!(
            "retry_after = {{ spread = \"{}\", limit = \"{}\", beyond = \"{}\" }}",
            format_duration(rule.spread),
            format_duration(rule.limit),
            rule.beyond.name()
        ));
        lines.extend(self.contention().map(|contention| {
            let (slot, limit) = (format_duration(contention.slot), format_duration(contention.limit));
            format!("contention = {{ slot = \"{slot}\", limit = \"{limit}\" }}")
        }));
        lines.join("\n") + "\n"
    }
}

fn growth_lines(growth: &Growth) -> Vec<String> {
    let duration = |key: &str, duration| format!("{key} = \"{}\"", format_duration(duration));
    match growth {
        Growth::Exponential { base, factor, max_exponent } => {
            let mut lines = vec![duration("base", *base), format!("factor = {}", factor.to_toml_value())];
            lines.extend(max_exponent.map(|exponent| format!("max_exponent = {exponent}")));
            lines
        }
        Growth::Linear { base, step } => vec![duration("base", *base), duration("step", *step)],
        Growth::Fibonacci { base } => vec![duration("base", *base)],
        Growth::Constant { delay } => vec![duration("delay", *delay)],
        Growth::List { delays } => {
            let each: Vec<_> =
                delays.iter().map(|delay| format!("\"{}\"", format_duration(*delay))).collect();
            vec![format!("delays = [{}]", each.join(", "))]
        }
    }
}

fn jitter_value(jitter: Jitter) -> String {
    match jitter {
        Jitter::Proportional(share) | Jitter::Additive(share) => {
            format!("{{ {} = {} }}", jitter.name(), share.to_toml_value())
        }
        Jitter::Scaled { low, high } => {
            format!("{{ scaled = [{}, {}] }}", low.to_toml_value(), high.to_toml_value())
        }
        plain => format!("\"{}\"", plain.name()),
    }
}

/// The difference in one subject: a policy, an operation, a default or the class of a code.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PolicyChange {
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
pub fn changes(before: &PolicySet, after: &PolicySet) -> Vec<PolicyChange> {
    let (was, is) = (facts(before), facts(after));
    let subjects: BTreeSet<&String> = was.iter().chain(&is).map(|(subject, _)| subject).collect();
    let lines = |facts: &[(String, Vec<String>)], subject: &String| {
        facts.iter().find(|(found, _)| found == subject).map(|(_, lines)| lines.clone()).unwrap_or_default()
    };
    let each = subjects.into_iter().map(|subject| (subject, lines(&was, subject), lines(&is, subject)));
    each.filter(|(_, was, is)| was != is)
        .map(|(subject, was, is)| PolicyChange {
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

fn add_scope(facts: &mut Vec<(String, Vec<String>)>, place: &str, scope: &PolicyScope) {
    if let Some(default) = &scope.default {
        facts.push((format!("{place}default"), vec![default.clone()]));
    }
    for (name, OperationSettings { policy, timeout, lease }) in &scope.operations {
        let mut lines = vec![policy.clone()];
        lines.extend(timeout.map(|time| format!("timeout = \"{}\"", format_duration(time))));
        lines.extend(lease.map(|time| format!("lease = \"{}\"", format_duration(time))));
        facts.push((format!("{place}operation {name}"), lines));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differences(before: &str, after: &str) -> Vec<String> {
        let set = |text| PolicySet::from_toml(text).unwrap();
        let line = |PolicyChange { subject, before, after }: PolicyChange| {
            format!("{subject}: {} → {}", before.join("; "), after.join("; "))
        };
        changes(&set(before), &set(after)).into_iter().map(line).collect()
    }

    #[test]
    fn only_the_differences_are_returned() {
        let file = "[policies.a]\nextends = \"standard\"\ncap = \"10s\"\n[operations]\n\"x\" = \"a\"";
        assert_eq!(differences(file, file), Vec::<String>::new());
        assert_eq!(
            differences(file, &file.replace("10s", "20s")),
            ["policy a: cap = \"10s\" → cap = \"20s\""]
        );
        assert_eq!(differences(file, &file.replace("= \"a\"", "= \"lock\"")), ["operation x: a → lock"]);
        let eu = "[namespaces.eu]\ndefault = \"lock\"\n[classes]\nhttp.418 = \"permanent\"";
        assert_eq!(
            differences("", eu),
            ["class of http 418:  → permanent", "namespace eu, default:  → lock"],
            "a new subject has no earlier lines"
        );
    }
}

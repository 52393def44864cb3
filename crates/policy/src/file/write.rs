//! Writes policies in the format that the reader accepts.

use std::fmt::Write;

use toml_writer::{ToTomlKey, ToTomlValue};

use super::duration::format_duration;
use crate::{Growth, Jitter, Operation, Policy, PolicySet, Scope};

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

fn write_operations(text: &mut String, place: &str, scope: &Scope) {
    if scope.operations.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n[{place}]");
    for (name, Operation { policy, timeout, lease }) in &scope.operations {
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
        lines.extend(self.crowd().map(|crowd| {
            let (slot, limit) = (format_duration(crowd.slot), format_duration(crowd.limit));
            format!("crowd = {{ slot = \"{slot}\", limit = \"{limit}\" }}")
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

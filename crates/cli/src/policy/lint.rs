//! `holdoff policy lint`

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use holdoff::LoadError;
use holdoff_policy::{Finding, Problems, Severity, lint};
use serde_json::json;

use crate::config;
use crate::error::CommandError;
use crate::output::{self, style};

pub(super) fn run(named: Option<&Path>, json: bool) -> Result<ExitCode, CommandError> {
    let missing = || {
        CommandError::Usage(
            "there is no holdoff.toml in the current directory; name a policy file".to_owned(),
        )
    };
    let file = config::find_file(named).ok_or_else(missing)?;
    let shown = file.display().to_string();
    let outcome = match config::load_checked(&file) {
        Ok(settings) => Ok(findings(&settings)),
        Err(LoadError::Problems(problems)) if json => Err(problems),
        // Prints the same message as the other commands; its heading names the section at fault.
        Err(error) => {
            let reported = config::load_settings(Some(&file)).err();
            return Err(reported.unwrap_or_else(|| CommandError::failed(error)));
        }
    };
    let failed = match &outcome {
        Ok(findings) => findings.iter().any(|finding| finding.severity == Severity::Error),
        Err(_) => true,
    };
    if json {
        writeln!(output::stdout(), "{}", as_json(&shown, &outcome))?;
    } else if let Ok(findings) = &outcome {
        print(&shown, findings)?;
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Returns the findings in the policies and in the lock settings that use them.
fn findings(settings: &config::AllSettings) -> Vec<Finding> {
    let mut findings = lint(&settings.policies);
    let used = settings.lock.policy_name().map(|name| format!("policy {name}"));
    findings.retain(|finding| finding.code != "unused-policy" || Some(&finding.subject) != used.as_ref());
    findings.extend(settings.lock.lint());
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}

fn print(file: &str, findings: &[Finding]) -> std::io::Result<()> {
    let mut out = output::stdout();
    for Finding { code, severity, subject, message, remedy } in findings {
        let style = match severity {
            Severity::Error => style::ERROR,
            Severity::Warning => style::WARNING,
            Severity::Note => style::NOTE,
        };
        let faint = style::FAINT;
        writeln!(
            out,
            "{style}{severity}[{code}]{style:#} {subject}: {message}\n  {faint}→{faint:#} {remedy}\n"
        )?;
    }
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let (errors, warnings, notes) = (count(Severity::Error), count(Severity::Warning), count(Severity::Note));
    writeln!(
        out,
        "{file}: {}, {}, {}",
        plural(errors, "error"),
        plural(warnings, "warning"),
        plural(notes, "note")
    )
}

fn plural(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn as_json(file: &str, outcome: &Result<Vec<Finding>, Problems>) -> serde_json::Value {
    let findings: Vec<_> = outcome
        .iter()
        .flatten()
        .map(|Finding { code, severity, subject, message, remedy }| {
            json!({
                "code": code, "severity": severity.name(), "subject": subject, "message": message, "remedy": remedy,
            })
        })
        .collect();
    let problems: Vec<_> = outcome
        .as_ref()
        .err()
        .into_iter()
        .flatten()
        .map(|problem| {
            json!({
                "line": problem.line, "column": problem.column, "message": problem.message,
                "expected": problem.expected, "suggestion": problem.suggestion,
            })
        })
        .collect();
    json!({ "file": file, "problems": problems, "findings": findings })
}

//! `POST /v1/policies/lint`: the linter for a policy file.

use axum::Json;
use holdoff_policy::{Finding, PolicySet, lint};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::super::input::Sent;
use crate::problem::Problem;

/// A file, as it would be written to `holdoff.toml`.
#[derive(Deserialize, ToSchema)]
#[schema(as = PolicyFile)]
#[serde(deny_unknown_fields)]
pub(super) struct FileForm {
    file: String,
}

/// What was found.
#[derive(Serialize, ToSchema)]
#[schema(as = LintReport)]
pub(super) struct Report {
    /// Whether it could be used: no problem, and no finding that is an error.
    ok: bool,
    /// What keeps it from being read.
    problems: Vec<Mistake>,
    /// What was found in it, the worst first.
    findings: Vec<Found>,
}

/// A mistake, and where it is.
#[derive(Serialize, ToSchema)]
#[schema(as = FileProblem)]
struct Mistake {
    /// From 1.
    line: usize,
    /// From 1, in characters.
    column: usize,
    message: String,
    /// What would be right.
    expected: Option<String>,
    /// The nearest word that would be right.
    suggestion: Option<String>,
}

/// Something found in a policy file.
#[derive(Serialize, ToSchema)]
#[schema(as = LintFinding)]
struct Found {
    /// A stable word for this kind of finding.
    code: &'static str,
    /// `error`, `warning` or `note`.
    severity: &'static str,
    /// The policy or operation it is about.
    subject: String,
    message: String,
    /// What to do about it.
    remedy: String,
}

/// Looks for trouble in a policy file. Nothing is kept.
///
/// The sections about work and locks are passed by.
#[utoipa::path(post, path = "/v1/policies/lint", tag = "policies", security(("token" = ["read"])),
    request_body = FileForm, responses((status = 200, description = "What was found.", body = Report)))]
pub(super) async fn lint_file(Sent(form): Sent<FileForm>) -> Result<Json<Report>, Problem> {
    let set = match PolicySet::from_toml(&form.file) {
        Ok(set) => set,
        Err(found) => {
            let problems = found.iter().map(|problem| Mistake {
                line: problem.line,
                column: problem.column,
                message: problem.message.clone(),
                expected: problem.expected.clone(),
                suggestion: problem.suggestion.clone(),
            });
            return Ok(Json(Report { ok: false, problems: problems.collect(), findings: Vec::new() }));
        }
    };
    let findings = lint(&set);
    let ok = findings.iter().all(|finding| finding.severity != holdoff_policy::Severity::Error);
    let findings = findings.into_iter().map(|Finding { code, severity, subject, message, remedy }| Found {
        code,
        severity: severity.name(),
        subject,
        message,
        remedy,
    });
    Ok(Json(Report { ok, problems: Vec::new(), findings: findings.collect() }))
}
